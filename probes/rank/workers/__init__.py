"""The making of batches, in loader workers or in the training process."""
