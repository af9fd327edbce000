"""Rules on host memory."""
