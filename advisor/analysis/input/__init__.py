"""How the loop gets its batches: loaders, workers, transforms, waits for input."""
