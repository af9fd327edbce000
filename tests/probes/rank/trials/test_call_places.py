"""A call is the one meant if one of its lines is; without a place, if torch does not make it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.trials.call_places import CallPlace, class_of_torch, lines_of_call

pytest.importorskip("torch")
HERE = Path(__file__)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith(text))


def asks(place: CallPlace, *_: Any) -> bool:
    return place.is_here()


def makes_it(place: CallPlace) -> bool:
    return asks(
        place,
        1,
    )  # last


@pytest.mark.skipif(sys.version_info < (3, 11), reason="NOT TESTED HERE: only the first line of a call is known")
def test_any_line_of_the_call_means_it() -> None:
    last = line_of("# last")
    assert [makes_it(CallPlace(str(HERE), last + off)) for off in (-4, -3, -1, 0, 1)] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_a_call_made_for_the_line_is_made_by_it_in_whatever_file() -> None:
    here = CallPlace(str(HERE), line_of("# outer"))
    assert makes_it(here)  # outer
    assert not makes_it(CallPlace(str(HERE.with_name("other.py")), here.line))
    assert makes_it(CallPlace(str(HERE), None))


def test_names_are_relative_to_the_folder_that_the_job_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    places = [CallPlace(str(tmp_path / "job.py"), 2), CallPlace("job.py", 2), CallPlace("later/job.py", 2)]
    monkeypatch.chdir(tmp_path / "later")
    told: list[bool] = []
    exec(compile("\ntold += [asks(place) for place in places]", "job.py", "exec"), {**globals(), **locals()})
    assert told == [True, True, False]


def test_without_a_place_every_call_is_meant_but_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    anywhere = CallPlace(None, None)
    assert asks(anywhere)
    folder = "rn50_advisor.probes.rank.trials.call_places.torchs_folder"
    monkeypatch.setattr(folder, lambda: str(HERE.parent))
    assert not asks(anywhere)


def test_a_class_is_the_jobs_own_call_or_what_its_class_derives_from() -> None:
    torch = pytest.importorskip("torch")

    class Own(torch.nn.Linear):  # type: ignore[name-defined,misc]
        pass

    assert class_of_torch(Own(1, 1)) is torch.nn.Linear
    assert class_of_torch(torch.optim.AdamW([torch.zeros(1)])) is torch.optim.AdamW, "which derives from Adam"
    assert class_of_torch([]) is None


def test_a_frame_that_runs_no_call_has_its_line() -> None:
    frame = sys._getframe()
    first, last = lines_of_call(frame)
    assert first == last == frame.f_lineno - 1
