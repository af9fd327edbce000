"""Machines with NVIDIA GPUs, and recordings made on them through the fake driver of the tests."""
