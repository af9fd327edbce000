"""A run as the real wandb writes it offline, sent by a process of its own as users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import rn50_advisor.advisor.commands.demo
from cli_process import environment
from report_samples import bottleneck
from rn50_advisor.advisor.model.errors import TrackerRefused, UsageError
from rn50_advisor.advisor.report.trackers import Destination, send
from rn50_advisor.advisor.report.trackers.parcel import parcel_of
from rn50_advisor.advisor.report.trackers.to_wandb import _place
from written_runs import written_run

DEMO = Path(rn50_advisor.advisor.commands.demo.__path__[0]) / "resnet50.tar.gz"
# Says at the end whether torch was loaded on the way.
_SENDS = """
import sys
from rn50_advisor.advisor.cli import main
try:
    main(sys.argv[1:])
finally:
    print("torch" in sys.modules)
"""


def sent(cwd: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _SENDS, "report", *arguments],
        cwd=cwd,
        env=environment(WANDB_DIR=str(cwd), MARKED_FOR_A_TEST=str(cwd), **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def left_running(cwd: Path) -> list[list[str]]:
    """Processes that inherited the variable of this test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARKED_FOR_A_TEST") == str(cwd):
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


_HEADER, _BLOCK = 7, 32768  # of the log format of LevelDB, in which wandb keeps its records
_FULL, _FIRST, _LAST = 1, 2, 4


def records(run: Path) -> Iterator[Any]:
    """What wandb has kept to be uploaded by `wandb sync`."""
    from wandb.proto import wandb_internal_pb2

    data = next(run.glob("*.wandb")).read_bytes()
    at, whole = _HEADER, b""
    while at + _HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part, at = data[at + _HEADER : at + _HEADER + length], at + _HEADER + length
        whole = part if kind in (_FULL, _FIRST) else whole + part
        if kind in (_FULL, _LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record


def values(items: Any) -> dict[str, Any]:
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def test_curves_verdict_findings_and_page_arrive_offline(tmp_path: Path) -> None:
    done = sent(tmp_path, str(DEMO), "--to", "wandb:team/vision", WANDB_MODE="offline", WANDB_API_KEY="")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert left_running(tmp_path) == []
    (run,) = (tmp_path / "wandb").glob("offline-run-*-rn50-*")
    assert done.stderr.splitlines() == [f"wandb: {run}: wandb sync {run}"]
    found = list(records(run))
    about = [record.run for record in found if record.HasField("run")]
    assert (about[0].entity, about[0].project, about[0].display_name) == ("team", "vision", "resnet50")
    rows = [values(record.history.item) for record in found if record.HasField("history")]
    steps = [row["rn50_advisor/step"] for row in rows if "rn50_advisor/step" in row]
    # wandb itself adds the step to the last row, of the page and the findings
    assert steps[:-1] == sorted(set(steps)) and 10 < len(steps) <= 241
    assert rows[0]["rn50_advisor/step_phase_seconds/input_wait"] > 0
    assert rows[-1]["rn50_advisor/report/_type"] == "html-file"
    assert rows[-1]["rn50_advisor/findings/_type"] == "table-file"
    summary: dict[str, Any] = {}
    for record in found:
        summary |= values(record.summary.update) if record.HasField("summary") else {}
    assert summary["rn50_advisor/verdict/rule"] == "DAT003" and summary["rn50_advisor/verdict/speedup_low"] > 1.0
    assert list(about[-1].tags) == ["rn50:bottleneck", "rn50:DAT003"]
    assert "report" in [record.artifact.type for record in found if record.HasField("artifact")]
    kept = "".join(path.read_text(errors="replace") for path in run.rglob("*") if path.is_file())
    assert "MARKED_FOR_A_TEST" not in kept


def test_without_a_key_it_is_one_line(tmp_path: Path) -> None:
    written_run(tmp_path / "runs" / "20250101-000000-first", steps=60)
    done = sent(tmp_path, "--to", "wandb", WANDB_API_KEY="", NETRC=os.devnull, HOME=str(tmp_path), WANDB_MODE="online")
    assert (done.returncode, done.stdout) == (2, "False\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("rn50-advisor: wandb did not take the report: ") and "wandb login" in line


@pytest.mark.parametrize(
    ("place", "read"),
    [
        ("", ("", "", "")),
        ("vision", ("", "vision", "")),
        ("team/vision", ("team", "vision", "")),
        ("team/vision/abc", ("team", "vision", "abc")),
    ],
)
def test_a_place_names_entity_project_and_run(place: str, read: tuple[str, str, str]) -> None:
    assert _place(place) == read


@pytest.mark.parametrize("place", ["/vision", "team/", "a/b/c/d", "a//c"])
def test_a_place_that_names_nothing_is_told(place: str) -> None:
    with pytest.raises(UsageError, match="names no run"):
        _place(place)


def test_offline_nothing_is_written_for_a_run_that_wandb_sync_may_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    parcel = parcel_of(bottleneck(), started_unix_s=1.0, identity="one")
    with pytest.raises(TrackerRefused, match="offline"):
        send(Destination("wandb", "team/vision/abc"), parcel)


def test_the_run_of_a_job_that_goes_on_is_left_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    parcel = replace(parcel_of(bottleneck(), started_unix_s=1.0, identity="one"), running=True)
    with pytest.raises(TrackerRefused, match="goes on"):
        send(Destination("wandb", "team/vision/abc"), parcel)
