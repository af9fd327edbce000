"""Limits set by control groups and by the cloud provider."""
