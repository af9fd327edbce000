"""Main program of a child of ours that is nothing but some Python of a test."""

from __future__ import annotations

import sys


def main() -> None:
    exec(sys.argv.pop(3), {})
