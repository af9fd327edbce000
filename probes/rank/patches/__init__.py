"""The recorder's patches of torch."""
