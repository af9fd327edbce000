"""A stand-in leaves behind the original, or whatever the job has put there meanwhile."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.rank.workers.sample_standins import put


class Base:
    def name(self) -> str:
        return "base"


class Own(Base):
    def name(self) -> str:
        return "own"


class Inherits(Base):
    pass


@pytest.mark.parametrize("owner", [Own, Inherits])
def test_what_stood_there_comes_back(owner: type) -> None:
    before = dict(vars(owner))
    put_back = put(owner, "name", lambda self: "the recorder's")
    assert owner().name() == "the recorder's"
    put_back()
    assert dict(vars(owner)) == before
    put_back()
    assert dict(vars(owner)) == before, "a second time does nothing"


@pytest.mark.parametrize("owner", [Own, Inherits])
def test_what_the_job_put_there_meanwhile_stays(owner: type, monkeypatch) -> None:
    put_back = put(owner, "name", lambda self: "the recorder's")
    monkeypatch.setattr(owner, "name", lambda self: "the job's")
    put_back()
    assert owner().name() == "the job's"
    monkeypatch.undo()
    put_back()
