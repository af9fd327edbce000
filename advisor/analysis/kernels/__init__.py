"""What traces of torch's profiler say: kernels, operators, idle gaps."""
