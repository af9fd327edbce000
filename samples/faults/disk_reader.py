"""A neighbour on a disk: reads random places of a large file, bypassing the page cache, until it is killed."""

from __future__ import annotations

import mmap
import os
import random
import sys
import time

PIECE_BYTES = 1 << 20


def main(file: str, pause_ms: str) -> None:
    fd = os.open(file, os.O_RDONLY | os.O_DIRECT)
    pieces = os.lseek(fd, 0, os.SEEK_END) // PIECE_BYTES
    buffer = mmap.mmap(-1, PIECE_BYTES)  # O_DIRECT needs page-aligned memory
    while True:
        os.preadv(fd, [buffer], random.randrange(pieces) * PIECE_BYTES)
        time.sleep(float(pause_ms) / 1e3)


if __name__ == "__main__":
    main(*sys.argv[1:])
