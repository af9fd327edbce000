"""Turns a recording's samples into one `Analysis`, by a pure function. No thresholds, no advice."""
