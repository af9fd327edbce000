"""Machines with NVIDIA GPUs, and recorded runs of them, for whoever has none at hand: made through the fake driver of the tests."""
