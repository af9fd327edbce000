"""Main program of the recording process that first runs some Python of a test."""

from __future__ import annotations

import sys


def main() -> None:
    exec(sys.argv.pop(1), {})
    from rn50_advisor.advisor.run import recording_process

    recording_process.main()
