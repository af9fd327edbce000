"""Traces of torch's profiler: kernels, operators and idle gaps."""
