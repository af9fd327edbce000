"""Where the training data is, and what its storage delivered."""
