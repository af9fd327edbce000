"""The command that tries fixes."""
