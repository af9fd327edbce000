"""Stacks of other processes, read with py-spy."""
