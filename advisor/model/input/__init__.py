"""Values on data loading: loaders, samples, what feeds a loop, storage."""
