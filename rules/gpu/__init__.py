"""Rules on the GPUs themselves: clocks, memory, links, errors."""
