"""Files beside the rings: facts of the ranks, their sources, what the job and its libraries printed."""
