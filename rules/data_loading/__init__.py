"""Rules on data loading: workers, transforms, epochs."""
