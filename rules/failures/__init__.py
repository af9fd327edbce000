"""Rules on jobs that fail, hang or become slower."""
