"""Data loading, in loader workers or in the training process."""
