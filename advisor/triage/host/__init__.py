"""Processors, memory, limits, network cards, and other load on the machine."""
