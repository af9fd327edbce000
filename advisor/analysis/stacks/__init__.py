"""Analyses stack samples of the training thread."""
