"""Stands in for torchdata."""
