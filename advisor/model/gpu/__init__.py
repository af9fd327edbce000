"""Values about GPUs: devices, memory, kernels, pace, roofline."""
