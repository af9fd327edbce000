"""Jobs to try the advisor on, and the faults that measure it. Not installed: run from a clone."""
