"""Rules on computing: kernels, precision, batch size."""
