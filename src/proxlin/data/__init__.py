"""Data: generators, readers and their cache."""
