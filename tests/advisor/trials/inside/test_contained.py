"""What a contained process says before it becomes the job. Whole jobs: tests/integration/trials."""

from __future__ import annotations

import os

import psutil
import pytest

from rn50_advisor.advisor.trials.inside.contained import enclose, main, place_of


def test_each_start_has_a_place_of_its_own() -> None:
    own = place_of("/private", os.getpid())
    assert own.startswith(f"/private/{os.getpid()}-")
    assert own == place_of("/private", os.getpid()) != place_of("/private", psutil.Process().ppid() or 1)
    with pytest.raises(ProcessLookupError):
        place_of("/private", 2**22 + 1)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="none"):
        enclose({"mode": "none"}, "/private/1-2")


@pytest.mark.parametrize("arguments", [["{}", "job"], ["{}", "--"]])
def test_without_a_command_it_ends(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setattr("sys.argv", ["contained", *arguments])
    with pytest.raises(SystemExit, match="usage"):
        main()
