"""Rules on communication between ranks."""
