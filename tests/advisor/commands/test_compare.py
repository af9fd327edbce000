"""How `compare` calls its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rn50_advisor.advisor.commands.compare import _names, compare
from traced_loops import traced_loop, written_trace


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("runs/before", "kept/after.tar.gz"), ["before", "after"]),
        (("runs/before/run.sqlite", "runs/after"), ["before", "after"]),
        (("one/run", "two/run"), ["one/run", "two/run"]),
        (("runs/same", "runs/same"), ["same (1)", "same (2)"]),
    ],
)
def test_runs_are_called_by_their_folder_or_bundle(paths: tuple[str, ...], names: list[str]) -> None:
    assert _names([Path(path) for path in paths]) == names


def test_traces_are_compared_like_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, wait in (("before", 60_000.0), ("after", 1_000.0)):
        written_trace(tmp_path / f"{name}.json", traced_loop(fetch=wait))
    done = CliRunner().invoke(compare, ["before.json", "after.json", "--format", "json"])
    assert json.loads(done.stdout)["runs"][0]["rule"] == "DAT003"
