"""Disks, mounts and files of the host."""
