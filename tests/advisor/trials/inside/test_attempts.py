"""The attempts by which a containment is tried really change files, where they may."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rn50_advisor.advisor.trials.inside.attempts import lay_out, main, refused, seen_in, unwritable


def test_every_attempt_changes_what_is_seen(tmp_path: Path) -> None:
    lay_out(tmp_path)
    before = seen_in(tmp_path)
    assert refused(tmp_path) == []
    after = seen_in(tmp_path)
    names = {
        Path(path).relative_to(tmp_path).parts[0] for path in {*before, *after} if before.get(path) != after.get(path)
    }
    assert names >= {
        "made",
        "replaced",
        "appended",
        "mapped",
        "renamed",
        "other",
        "removed",
        "link",
        "emptied",
        "rows.sqlite",
    }


def test_attempts_that_fail_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = str(tmp_path / "gone")
    monkeypatch.setattr("sys.argv", ["attempts", gone, str(tmp_path), gone])
    main()
    heard = json.loads(capsys.readouterr().out)
    assert heard["unwritable"] == [gone] == unwritable([gone])
    assert set(heard["refused"]) >= {
        "made",
        "appended",
        "mapped",
        "renamed",
        "removed",
        "linked",
        "emptied",
        "rows.sqlite",
    }
