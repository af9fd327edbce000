"""Rules on the host's processors."""
