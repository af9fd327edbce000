"""Finds why a job failed or stalled."""
