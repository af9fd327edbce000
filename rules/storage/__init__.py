"""Rules on disks and volumes."""
