"""Ranks many machines by what was measured on them, and names those that are not like the others."""
