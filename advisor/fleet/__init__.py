"""Ranks many machines by their measurements and names the outliers."""
