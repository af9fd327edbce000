"""Benchmarks that use the trainer's own libraries: run by path in that interpreter, they import nothing of the advisor."""
