"""The command that checks a change in CI."""
