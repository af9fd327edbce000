"""How `compare` calls its runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.commands.compare import _names


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
