"""Prepares each run for `compare`, and measures by how much runs differ."""
