"""FLOPs of known models and peaks of GPUs: the two sides of a roofline, each row with its source."""
