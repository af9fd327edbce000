"""The rank's view of collectives and DistributedDataParallel."""
