"""What the GPUs did, by the driver and by the recorder."""
