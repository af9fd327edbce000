"""A package, for its tests are called like others elsewhere."""
