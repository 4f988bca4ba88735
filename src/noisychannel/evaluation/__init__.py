"""Held-out data, metrics, significance, baselines, and the table of systems."""
