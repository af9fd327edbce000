"""The loop's input: data loaders, workers, transforms and the time the step waits for a batch."""
