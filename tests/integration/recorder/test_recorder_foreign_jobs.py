"""Jobs whose batches come past torch's own loading: their waits are seen, and from whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_recorder_jobs import rings, run, steps

from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank.layout import FLAG_EPOCH_START, FLAG_NO_LOADER, KIND_BATCH

pytestmark = pytest.mark.torch

STEPS = 24  # two epochs of twelve
UNSEEN_MAX = 2  # before the first backward pass nobody has looked around; a queue is known by what is put in after that


def watched(style: str, folder: Path) -> tuple[list[tuple[int, dict[str, int]]], dict[str, Any], list[RingReader]]:
    """(steps, facts, rings of the workers) of one job."""
    done = run("foreign.py", style, folder=folder)
    assert done.returncode == 0, done.stderr
    [facts] = [json.loads(path.read_text()) for path in folder.glob("facts-*.json")]
    return steps(rings(folder)[0]), facts, rings(folder, "worker")


@pytest.mark.parametrize(
    ("style", "name", "library"),
    [("dali", "DALIClassificationIterator", "nvidia.dali"), ("ffcv", "EpochIterator", "ffcv")],
)
def test_iterators_of_libraries_feed_the_steps(tmp_path: Path, style: str, name: str, library: str) -> None:
    found, facts, _ = watched(style, tmp_path)
    assert len(found) in (STEPS, STEPS + 1)
    seen = [(flags, step) for flags, step in found if not flags & FLAG_NO_LOADER]
    assert len(seen) >= STEPS - UNSEEN_MAX
    assert all(step["samples"] == 8 and step["input_wait_ns"] > 0 for _, step in seen[:-1])
    assert sum(bool(flags & FLAG_EPOCH_START) for flags, _ in found) == 2
    [loader] = facts["loaders"]
    assert (loader["class"], loader["library"], loader["training"]) == (name, library, True)
    assert loader["file"].endswith("foreign.py") and facts["input_libraries"] == [library]


def test_a_thread_that_runs_ahead_hands_on_its_loaders_batches(tmp_path: Path) -> None:
    found, facts, workers = watched("thread", tmp_path)
    seen = [step for flags, step in found if not flags & FLAG_NO_LOADER]
    # the loop of the first epoch holds the method it began with, that of the second asks once before anything was put in
    assert len(seen) >= STEPS / 2
    assert {step["loader"] for step in seen if step["micro_batches"]} == {0}
    assert facts["fetches_in_another_thread"] is True
    assert facts["loaders"][0]["training"] is True and facts["loaders"][0]["num_workers"] == 1
    assert len(workers) == 2


def test_a_loader_with_constructors_and_workers_of_its_own_is_known_all_the_same(tmp_path: Path) -> None:
    found, facts, workers = watched("stateful", tmp_path)
    assert len(found) == STEPS and {step["loader"] for _, step in found} == {0}
    [loader] = facts["loaders"]
    assert (loader["class"], loader["num_workers"], loader["training"]) == ("StatefulDataLoader", 1, True)
    assert loader["file"].endswith("foreign.py")
    assert [len(reader.drain().rows[KIND_BATCH]) for reader in workers] == [12, 12]
