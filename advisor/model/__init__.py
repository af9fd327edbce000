"""Frozen value types, the catalogue of metrics, statistics. No I/O, no clock."""
