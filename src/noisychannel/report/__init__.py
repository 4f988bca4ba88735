"""``noisychannel report``: one self-contained page about a run.

options      what to report
subject      the items, decoded by every system
section      what all sections share
training, learning, systems, weights, disagreements, search_errors, alignments, symbols, kinds, coverage: the sections
page         the whole document
"""
