"""What experiments on pairs of sentences share: data, names of runs, sizes, rows and training.

pairs        sentence pairs, unpaired outputs and test sets from files
amounts      how much data rows ask for, and how much there is
specs        what the name of a run says, and what a kind of model is
scale        sizes of data and models
rows         variants of rows: several seeds, ensembles, everything but the channel
experiment   files, vocabularies, back-translation and configurations of runs
"""
