"""Reads from the source of functions that stack samples found what the stacks do not show."""
