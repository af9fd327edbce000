"""Facts of a rank that do not change from step to step."""
