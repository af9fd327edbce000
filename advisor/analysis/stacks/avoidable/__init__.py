"""Lines of the user's code whose time a step could do without, found and measured by stack samples."""
