"""One file a command; each imports what it needs when it is run, so that none waits for another's imports."""
