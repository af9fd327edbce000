"""Starts the job, passes its signals and output through, and exits with its status."""
