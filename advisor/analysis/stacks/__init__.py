"""Stack samples of the training thread."""
