"""NVIDIA GPUs through NVML and the kernel."""
