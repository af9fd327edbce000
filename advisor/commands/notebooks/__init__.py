"""Recording from inside a process that already runs: `watch()` and the cell magic."""
