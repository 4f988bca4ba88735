"""First sentence → headline: the paper's first experiment, with half a million pairs and unpaired headlines."""
