"""Reads the files of torch.profiler as the recording of a run."""
