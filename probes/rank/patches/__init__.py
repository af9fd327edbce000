"""Where the recorder touches torch."""
