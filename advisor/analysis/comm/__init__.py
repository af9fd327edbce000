"""Collectives, DistributedDataParallel and NCCL."""
