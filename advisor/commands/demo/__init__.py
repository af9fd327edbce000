"""The command `demo` and the recorded run that it shows."""
