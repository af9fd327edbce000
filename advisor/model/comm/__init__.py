"""Values about communication between ranks."""
