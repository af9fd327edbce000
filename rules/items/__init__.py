"""Rules on what making one item of a data set costs."""
