"""Values on communication between ranks."""
