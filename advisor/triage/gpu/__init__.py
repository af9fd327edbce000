"""GPUs: health by the driver, speed by torch."""
