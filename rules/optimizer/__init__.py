"""Rules on what optimizers update, and on the gradients that are made for them."""
