"""FLOPs of known models and peak throughput of GPUs, the two sides of a roofline. Each row has its source."""
