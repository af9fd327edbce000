"""Rules on the work of the training loop outside its steps."""
