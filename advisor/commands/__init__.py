"""One file per command. A command imports what it needs when it runs, so that it does not wait for another's imports."""
