"""Training: configuration, the loop, its checkpoints, and many models at once."""
