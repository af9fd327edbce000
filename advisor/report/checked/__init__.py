"""Shows a run, and its comparison with another, where a CI service wants it: at lines of code and in one comment."""
