"""Draws the picture of docs/how-to/metrics.md: a real job in Prometheus' own page. `python -m docs.prometheus_picture`, a minute.

The job trains on this machine while the picture is drawn, so each drawing differs; `make pictures` leaves it as it is.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from docs.chromium import find_browser, photograph_page

PICTURE = Path(__file__).parent / "pictures" / "prometheus.png"
SIZE = 1060, 990  # pixels
ASKED = "sum by (phase) (rn50_advisor_step_phase_duration_seconds)"
SHOWN_S = 45  # of the job, after the first readings
FIRST_S = 10
WANTED = "torch", "prometheus_client", "opentelemetry"
# Its storage answers six times as slowly after a while.
JOB = """
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Stored(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.001 if time.monotonic() < slow_from else 0.006)
        return torch.randn(512), i % 10


torch.set_num_threads(1)
slow_from = time.monotonic() + 30
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(Stored(), batch_size=16):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    if Path(sys.argv[1]).exists():
        break
"""
_WITHIN_S = 90.0
_Found = TypeVar("_Found")


def main() -> None:
    browser, server = find_browser(), shutil.which("prometheus")
    missing = [name for name, found in (("Chromium", browser), ("prometheus", server)) if not found]
    missing += [name for name in WANTED if find_spec(name) is None]
    if browser is None or server is None or missing:
        raise SystemExit(f"{PICTURE.name} is as it was: it wants {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as temporary:
        photograph_job(browser, server, PICTURE, Path(temporary))


def photograph_job(browser: str, server: str, picture: Path, folder: Path) -> None:
    """Trains in `folder`, with its `runs` and Prometheus' data there, until the page has SHOWN_S of the job."""
    (folder / "train.py").write_text(JOB, encoding="utf-8")
    command = [sys.executable, "-m", "rn50_advisor.advisor.cli", "run", "--no-tui", "--metrics-listen", "0"]
    job = [sys.executable, "train.py", "enough"]
    with (folder / "said").open("wb") as said:
        run = subprocess.Popen([*command, "--", *job], cwd=folder, stdout=said, stderr=said)
    try:
        notes = _wait(lambda: list((folder / "runs").glob("*/metrics.address")), "the job's metrics")
        api, prometheus = _serve(server, notes[0].read_text().strip(), folder)
        try:
            since_s = FIRST_S + SHOWN_S
            shown = f"count_over_time(rn50_advisor_samples_per_second[{since_s}s]) > {0.95 * since_s:g}"
            _wait(lambda: _answer(api, shown), f"{since_s} s of the job")
            graph = {"g0.expr": ASKED, "g0.tab": 0, "g0.stacked": 1, "g0.range_input": f"{SHOWN_S}s"}
            photograph_page(browser, f"{api}/graph?{urlencode(graph)}", picture, size=SIZE, virtual_ms=15_000)
        finally:
            prometheus.terminate()
            prometheus.wait()
    finally:
        (folder / "enough").touch()
        run.wait(_WITHIN_S)


def _serve(server: str, target: str, folder: Path) -> tuple[str, subprocess.Popen[bytes]]:
    """Starts a Prometheus that asks `target` once a second. Returns its address and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    jobs = [{"job_name": "training", "static_configs": [{"targets": [target]}]}]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [server, "--config.file", "prometheus.yml", "--storage.tsdb.path", "data"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, "--web.listen-address", address], cwd=folder, stdout=log, stderr=log)
    return f"http://{address}", process


def _answer(api: str, expression: str) -> list[Any]:
    """The series that Prometheus answers with; empty as long as it does not answer."""
    try:
        with urllib.request.urlopen(f"{api}/api/v1/query?{urlencode({'query': expression})}", timeout=10) as answer:
            return list(json.load(answer)["data"]["result"])
    except OSError:
        return []


def _wait(find: Callable[[], _Found], what: str) -> _Found:
    """Raises TimeoutError."""
    until_s = time.monotonic() + _WITHIN_S
    while time.monotonic() < until_s:
        if found := find():
            return found
        time.sleep(0.5)
    raise TimeoutError(f"{what} did not come")


if __name__ == "__main__":
    main()
