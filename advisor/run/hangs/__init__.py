"""Notices ranks that stand still, and records what they stand in."""
