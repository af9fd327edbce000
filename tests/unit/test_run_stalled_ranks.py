"""What is told of a rank that stands still: its collective by its ring's header, and torch's flight recorder where it was written down."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.run.options import RunOptions
from advisor.run.rings import RingReader
from advisor.run.stacks import StackWatch, Watched
from probes.rank.layout import COLLECTIVE_KINDS, COLLECTIVE_OFFSET, PHASE_CODE, ROLE_RANK
from probes.rank.ring import Ring

FIRST = COLLECTIVE_OFFSET // 8


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    made = Ring(str(tmp_path / f"rank-{os.getpid()}.ring"), slots=16, role=ROLE_RANK, rank=1)
    made.phase(PHASE_CODE["backward"], 7, 5000)
    yield made


def begins(ring: Ring, *words: int) -> None:
    for place, word in enumerate(words):
        ring.words[FIRST + place] = word


def told(ring: Ring) -> dict[str, Any]:
    reader = RingReader(Path(ring.path))
    watch = StackWatch(RunOptions(stacks=False), post=lambda news: None)
    made_ns = reader.identity.created_ns
    watch._readers[Path(ring.path), made_ns] = reader
    watched = Watched(1, os.getpid(), Path(ring.path), made_ns, steps=5, outside_share=0.0, p99_ns=0)
    try:
        return watch._stalled_rank(watched, reader.position())
    finally:
        reader.close()


def test_a_rank_inside_a_collective_says_which(ring: Ring) -> None:
    begins(ring, 12, COLLECTIVE_KINDS.index("broadcast"), 99, 4, 1)
    found = told(ring)["collective"]
    assert (found["begun"], found["kind"], found["group"], found["size"]) == (12, "broadcast", 99, 4)
    assert found["inside_s"] > 0


def test_a_rank_that_has_left_its_last_collective_is_in_none(ring: Ring) -> None:
    begins(ring, 12, 0, 99, 4, 0)
    assert told(ring)["collective"]["inside_s"] is None


@pytest.mark.parametrize(
    "words", [(), (0, 0, 0, 0, 0), (3, 77, 1, 2, 5)], ids=["nothing", "none begun", "a newer kind"]
)
def test_where_the_header_says_nothing_nothing_is_told(ring: Ring, words: tuple[int, ...]) -> None:
    begins(ring, *words)
    assert "collective" not in told(ring)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (json.dumps({"since_ns": 5000, "dumps": [{"entries": []}]}), True),
        (json.dumps({"since_ns": 4999, "dumps": [{"entries": []}]}), False),  # of an earlier stand
        ("{", False),
        ("[]", False),
        (json.dumps({"since_ns": 5000, "dumps": 3}), False),
    ],
)
def test_a_flight_recorders_dump_is_told_where_it_is_of_this_stand(ring: Ring, text: str, kept: bool) -> None:
    Path(ring.path).with_name(f"flight-{os.getpid()}.json").write_text(text)
    assert told(ring).get("flight") == ([{"entries": []}] if kept else None)
