"""Disks and picture decoding, measured."""
