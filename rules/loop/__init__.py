"""Rules on what the training loop does beside its steps."""
