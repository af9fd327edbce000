"""Lines and slices for the screen and the plots."""
