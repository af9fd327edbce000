"""Values on GPUs: devices, memory, kernels, pace, roofline."""
