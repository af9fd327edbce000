"""Publishes the JSON Schemas of what the commands print for programs."""
