"""Samples to one `Analysis`: a pure function of a recording. No thresholds, no advice."""
