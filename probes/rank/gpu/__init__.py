"""The GPU as the rank sees it: events, synchronising calls, the profiler, graph captures."""
