"""The rank's view of its GPU: events, synchronising calls, the profiler, graph captures."""
