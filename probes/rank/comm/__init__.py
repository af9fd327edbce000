"""Collectives and DistributedDataParallel, as the rank sees them."""
