"""Draws the picture of docs/how-to/trackers.md: the demo's run in TensorBoard itself. `python -m docs.tracker_picture`

Each drawing differs by a little, so `make pictures` leaves it as it is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from docs.chromium import find_browser, photograph_page

from rn50_advisor.advisor.commands.demo.demo import RUN
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report.trackers import Destination, send
from rn50_advisor.advisor.report.trackers.parcel import parcel_of
from rn50_advisor.advisor.verdict.diagnose import diagnose

PICTURE = Path(__file__).parent / "pictures" / "tensorboard.png"
SIZE = 1060, 580  # pixels
SHOWN = "samples|seconds/(input_wait|forward|backward)"
_STARTS_WITHIN_S, _WITHIN_S = 60.0, 120.0


def main() -> None:
    recording, browser = read_job(RUN), find_browser()
    if browser is None or not photograph_tracker(diagnose(recording), recording, PICTURE, browser):
        raise SystemExit(f"{PICTURE.name} is as it was: it wants Chromium and TensorBoard")


def photograph_tracker(report: Report, recording: Recording, picture: Path, browser: str) -> list[str]:
    """Writes TensorBoard's page with the run as PNG. Returns the names of its curves; none if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        return []
    parcel = parcel_of(report, started_unix_s=recording.meta.started_unix_s, identity="")
    with tempfile.TemporaryDirectory() as temporary:
        logs = Path(temporary) / "logs"
        send(Destination("tensorboard", str(logs)), parcel)
        said = Path(temporary) / "said"
        with said.open("wb") as output:
            command = [sys.executable, "-m", "tensorboard.main", "--logdir", "logs", "--port", "0"]
            server = subprocess.Popen(command, cwd=temporary, stdout=output, stderr=output)
        try:
            page = _page(said)
            curves = _curves(page)
            address = f"{page}/#scalars&_smoothingWeight=0&tagFilter={quote(SHOWN)}"
            photograph_page(browser, address, picture, size=SIZE, virtual_ms=15_000)
        finally:
            server.terminate()
            server.wait()
    return curves


def _page(said: Path) -> str:
    """Waits for the server's address. Raises TimeoutError."""
    until_s = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < until_s:
        found = re.search(r"http://[\w.]+:(\d+)", said.read_text(errors="replace").split("TensorBoard ")[-1])
        if found:
            return f"http://127.0.0.1:{found[1]}"
        time.sleep(0.1)
    raise TimeoutError("TensorBoard did not start")


def _curves(page: str) -> list[str]:
    """Waits until the server has read the run."""
    until_s = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < until_s:
        with urllib.request.urlopen(f"{page}/data/plugin/scalars/tags", timeout=_WITHIN_S) as answer:
            runs = json.load(answer)
        if runs:
            return sorted(tag for tags in runs.values() for tag in tags)
        time.sleep(0.2)
    raise TimeoutError("TensorBoard did not read the run")


if __name__ == "__main__":
    main()
