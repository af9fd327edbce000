"""Objects that a job drops die as they would alone: the recorder neither holds them nor puts them into a cycle."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from test_output import assert_same, both

pytestmark = pytest.mark.torch

JOB = Path(__file__).parent / "lifetimes_job.py"


def test_objects_die_where_they_would_have_died(tmp_path: Path) -> None:
    alone, watched = both(tmp_path, sys.executable, JOB)
    assert alone[0] == 0 and alone[1].count("died:") > 30, alone
    assert_same(alone, watched)


def test_a_queue_that_is_watched_dies_with_its_batches(tmp_path: Path) -> None:
    alone, watched = both(tmp_path, sys.executable, JOB, "queue")
    assert watched[2].count("in a queue of its own") == 3, "it was watched indeed"
    assert alone[0] == 0 and alone[1].count("died:") == 9, alone
    assert_same(alone, (*watched[:2], alone[2]))
