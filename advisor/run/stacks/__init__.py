"""Stack samples of ranks and workers, taken from outside."""
