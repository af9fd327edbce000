"""Which cloud instance a machine is, and what such a one should have."""
