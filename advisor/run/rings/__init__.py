"""The reading end of the ring files, and the folders that hold them."""
