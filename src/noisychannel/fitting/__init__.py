"""From a user's pairs and words to a tuned run in one call: what ``noisychannel fit`` does."""
