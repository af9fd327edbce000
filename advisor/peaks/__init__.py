"""What a model has to compute and what a GPU could at best: the two sides of a roofline, each row with its source."""
