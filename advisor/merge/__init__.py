"""A job on several hosts: which runs belong together, how their clocks compare, and what they say as one recording."""
