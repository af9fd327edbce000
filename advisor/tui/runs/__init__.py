"""The list of runs on the screen: what it shows of each, and what can be done with them."""
