"""Search: from scores to hypotheses."""
