"""One rule, one file: what it looks for, why it is slow, how to fix it."""
