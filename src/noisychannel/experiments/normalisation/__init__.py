"""Historical spelling → modern spelling: two texts, learning curves over the number of training tokens."""
