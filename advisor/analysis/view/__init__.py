"""Strips and time slices for the screen and the plots."""
