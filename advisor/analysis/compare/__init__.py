"""Prepares runs for `compare` and measures how much they differ."""
