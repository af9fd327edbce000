"""Trains a known model setting by setting, each under the advisor's own eyes, and says how fast and why not faster."""
