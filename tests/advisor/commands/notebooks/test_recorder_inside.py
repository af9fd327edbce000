"""How the recorder gets into a running process: the environment of its children, modules that come later."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.commands.notebooks.recorder_inside import (
    _After,
    _after,
    children_recorded,
    runs_under_advisor,
)


@pytest.mark.parametrize("before", [None, "", "/theirs"])
def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv("RN50_ADVISOR_DIR", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    was = dict(os.environ)
    with children_recorded("/dev/shm/rings"):
        assert os.environ["RN50_ADVISOR_DIR"] == "/dev/shm/rings" and runs_under_advisor()
        folder, _, rest = os.environ["PYTHONPATH"].partition(":")
        assert Path(folder).name == ("inject" if before else "inject_unset") and rest == (before or "")
    assert dict(os.environ) == was and not runs_under_advisor()


def test_what_the_user_sets_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    with children_recorded("/dev/shm/rings"):
        os.environ["PYTHONPATH"] = "/new"
    assert os.environ["PYTHONPATH"] == "/new"


def test_a_module_is_followed_whether_it_is_there_or_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "comes_later.py").write_text("value = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    called: list[str] = []
    _after("os", lambda: called.append("os"))
    assert called == ["os"]

    def fails() -> None:
        called.append(str(sys.modules["comes_later"].value))
        raise OSError("ours")

    sys.meta_path.insert(0, _after("comes_later", fails))
    import comes_later  # type: ignore[import-not-found]

    assert called == ["os", "1"] and "exec_module" not in vars(comes_later.__spec__.loader)
    assert not any(isinstance(finder, _After) and not finder.waits_for_torch for finder in sys.meta_path)
    monkeypatch.delitem(sys.modules, "comes_later")
