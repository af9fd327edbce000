"""Starts the job, passes its signals and output through, and ends as it ended."""
