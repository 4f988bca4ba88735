"""The experiments of the paper, and ours beside them: what they read, train and report."""
