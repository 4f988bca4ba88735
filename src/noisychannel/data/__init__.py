"""From files to batches: files -> rows -> symbols -> ids -> batches. Each module knows its neighbours only."""
