"""Finds and masks credentials before anything is stored or shown."""
