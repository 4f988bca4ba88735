"""Experiments with 100 to 1,000 pairs and a list of words: inflection of nine languages, and letters and phonemes."""
