"""A simulator of training on GPUs: hosts that queue work, streams that do it, and the real recorder in between."""
