"""Documents against their types: what misfits is left out by its name, and reported in one line."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.store.document_checks import DOCUMENTS, fitting, misfit
from rn50_advisor.probes.documents.collective_documents import StalledPosition
from rn50_advisor.probes.documents.machine_documents import MachineFacts
from rn50_advisor.probes.documents.rank_documents import RankFacts

FRAME = {"function": "step", "file": "/job/train.py", "line": 7}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"syncs": None}, "syncs: Expected object, got null"),
        ({"syncs": []}, "syncs: Expected object, got array"),
        ({"syncs": {"looks": "many"}}, "syncs.looks: Expected int, got str"),
        ({"syncs": {"looks": 3, "sites": [None, 7]}}, "syncs.sites[0]: Expected object, got null"),
        ({"loaders": [{"id": 0, "line": "x"}]}, "loaders[0].line: Expected int, got str"),
        ({"loaders": [{"dataset": {"inner": {"class": 3}}}]}, "loaders[0].dataset.inner.class: Expected str, got int"),
        ({"optimizer": {"convolutions": {"weights": "many"}}}, "optimizer.convolutions.weights: Expected int, got str"),
        ({"work": [[1]]}, "work[0]: Expected array of length >= 4"),
        ({"pid": 1 << 70}, f"pid: Expected int <= {1 << 62}"),
        ({"written_unix_s": float("nan")}, "written_unix_s: Expected float >= -4.611686018427388e+18"),
    ],
)
def test_what_misfits_is_left_out_by_its_name_and_reported(facts: dict[str, Any], words: str) -> None:
    assert fitting({**facts, "rank": 3}, RankFacts) == ({"rank": 3}, [words])


def test_of_several_misfits_each_is_left_out() -> None:
    kept, wrong = fitting({"argv": "x", "cwd": 5, "rank": 0, "\ud800": 1}, RankFacts)
    assert kept == {"rank": 0} and len(wrong) == 3


def test_names_of_a_newer_advisor_stay_whatever_they_hold() -> None:
    document = {"new": [{"x": object()}], "loaders": [{"id": 0, "new": [1]}]}
    assert fitting(document, RankFacts) == (document, [])


def test_what_is_nested_too_deeply_is_left_out_and_what_others_wrote_stays_unread() -> None:
    deep: list[Any] = []
    for _ in range(60):
        deep = [deep]
    assert fitting({"new": deep, "rank": 1}, RankFacts)[0] == {"rank": 1}
    dumps = [{"entries": [{"line": "x", "count": float("nan")}]}]
    assert fitting({"since_ns": 1, "dumps": dumps}, StalledPosition) == ({"since_ns": 1, "dumps": dumps}, [])


@pytest.mark.parametrize(
    ("kind", "data", "fits"),
    [
        ("interpreter", {"looks": 3, "waiting": 1}, True),
        ("interpreter", {"looks": 3}, False),
        ("profile", {"looks": 1, "stacks": [{"count": 1, "frames": [FRAME], "user": None}]}, True),
        ("profile", {"looks": 1, "stacks": [{"count": 1, "frames": [{"file": "x"}]}]}, False),
        ("profile", {"looks": 1, "stacks": [3]}, False),
        ("stall", {"id": 1, "ranks": [{"rank": 0, "flight": [{"anything": None}]}]}, True),
        ("stall", {"id": 1, "ranks": [{"step": 0}]}, False),
        ("output", {"lines": ["x"]}, True),
        ("output", {"lines": [None]}, False),
    ],
)
def test_an_event_has_what_its_kind_needs(kind: str, data: dict[str, Any], fits: bool) -> None:
    assert (misfit(data, DOCUMENTS[kind]) == "") is fits


def test_a_gpu_without_a_number_is_none() -> None:
    assert "gpus[0]" in misfit({"gpus": [{"name": "A100"}]}, MachineFacts)
