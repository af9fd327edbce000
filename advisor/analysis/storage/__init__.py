"""Finds the storage of the training data and measures what it delivered."""
