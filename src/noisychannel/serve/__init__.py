"""A server for runs: a JSON interface, and a page for people."""
