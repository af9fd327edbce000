"""Reads traces of torch's profiler: kernels, operators and idle gaps."""
