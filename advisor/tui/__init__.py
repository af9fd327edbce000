"""The live screen: shows one `Report`, live or replayed. Computes nothing new."""
