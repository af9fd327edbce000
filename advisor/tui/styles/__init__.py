"""Glyphs, colours and drawing that all panels share."""
