"""What leaves a run while it goes: metrics for the engines that fleets run. One process beside the job reads the run for all of it."""
