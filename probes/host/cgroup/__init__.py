"""Limits of control groups and of the provider."""
