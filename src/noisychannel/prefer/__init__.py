"""People compare two systems: a blind page, its key, ratings, and their tally, as in the paper's Table 3.

outputs      what a system puts out, from any file that has outputs
pairing      the items that are compared
key          which output is of which system; raters never get it
page         the page; ``serving`` shows it and stores ratings
ratings      what raters said
tally        the table of counts, with ``agreement`` and a sign test
"""
