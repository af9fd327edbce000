"""The diff that a real run's report advises, applied to the script: it trains as before, with the workers it asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import TIMEOUT_S, advisor, environment

pytestmark = pytest.mark.torch

TRAIN = """\
import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        time.sleep(0.005)  # as if it were read from afar
        return torch.full((4,), float(index)), index


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loader = DataLoader(
        Slow(),
        batch_size=8,
        shuffle=True,
        num_workers=args.workers,  # the house has few cores
    )
    api_key = "0123456789abcdef0123456789abcdef"
    for batch, indices in loader:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(indices.tolist(), loss.item().hex())


if __name__ == "__main__":
    main()
"""


def test_the_edited_script_trains_as_before(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    job = (sys.executable, "train.py")
    done = advisor("run", "--no-tui", "--report", "report.json", "--", *job, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    fix = next(finding for finding in report["findings"] if finding["rule"] == "DAT003")["fixes"][0]
    workers = int(fix["title"].split(" → ")[1].split(",")[0])
    assert fix["change"].endswith(f"\npass --workers {workers}")
    assert script.read_text() == TRAIN, "the user's file is never written to"

    subprocess.run(["patch", "-p1"], cwd=tmp_path, input=fix["diff"].encode(), check=True, capture_output=True)
    assert script.read_text() == TRAIN.replace("default=0", f"default={workers}").replace(
        "few cores\n", "few cores\n        persistent_workers=args.workers > 0,\n"
    )
    again = subprocess.run(
        job, cwd=tmp_path, capture_output=True, timeout=TIMEOUT_S, check=True, env=environment(OMP_NUM_THREADS="1")
    )
    assert len(again.stdout.splitlines()) == 32
    assert again.stdout == done.stdout

    shown = advisor("report", "--format", "md", cwd=tmp_path).stdout.decode()
    assert "```diff\n--- a/train.py\n+++ b/train.py\n" in shown and "Slow, 256 samples" in shown
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("runs/*/run.sqlite*"))
    assert b"class Slow" in stored and b"0123456789abcdef" not in stored
