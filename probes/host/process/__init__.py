"""The kernel's accounting of the job's processes."""
