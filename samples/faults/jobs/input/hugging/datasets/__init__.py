"""Stands in for Hugging Face's `datasets` where it is not installed: its classes' names, and the times of its look-ups."""

from .arrow_dataset import Dataset

__all__ = ["Dataset"]
