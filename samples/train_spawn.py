"""Starts the training of train.py with torch.multiprocessing.spawn instead of torchrun.

python samples/train_spawn.py --processes 2 -- --data IMAGES --model resnet18
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import train
from torch.multiprocessing.spawn import spawn


def work(rank: int, processes: int, rendezvous: str, args: argparse.Namespace) -> None:
    if processes > 1 and not torch.cuda.is_available():
        torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    train.run(args, rank, rank, processes, init_method=f"file://{rendezvous}/store")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=max(1, torch.cuda.device_count()))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of train.py, after --")
    own = parser.parse_args()
    args = train.parse_arguments(own.arguments[own.arguments[:1] == ["--"] :])
    with tempfile.TemporaryDirectory() as rendezvous:
        spawn(work, args=(own.processes, rendezvous, args), nprocs=own.processes)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
