"""Shows what `try` measured, and how well rules have foretold it on this machine."""
