"""Values about data loading: loaders, samples, the source of a loop's batches, storage."""
