"""Consecutive steps become windows, and what stands out stays alone."""

from __future__ import annotations

import numpy as np
import pytest

from rn50_advisor.advisor.store.retention import SECOND_NS
from rn50_advisor.advisor.store.step_folding import COLUMNS, fold
from rn50_advisor.probes.rank.layout import (
    FLAG_DEEP,
    FLAG_EPOCH_START,
    FLAG_SKIPPED_UPDATE,
)
from store_rows import MS, Row, step_row


def as_rows(rows: list[Row]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array([(*payload, flags, 1) for flags, payload in rows], np.int64)


@pytest.mark.parametrize(
    ("steps", "bridge", "first_rows"),
    [
        ([0, 1, 2, 3], False, [0]),
        ([0, 1, 5, 6], False, [0, 2]),  # the agent lost records: no window may claim their time
        ([0, 1, 5, 6], True, [0]),
        ([7, 8, 0, 1], False, [0, 2]),  # the rank was started again
        ([7, 8, 0, 1], True, [0, 2]),
    ],
)
def test_windows_end_where_steps_are_missing(steps: list[int], bridge: bool, first_rows: list[int]) -> None:
    rows = as_rows([step_row(step, start_ns=place * 10 * MS) for place, step in enumerate(steps)])
    assert fold(rows, SECOND_NS, 0.01, bridge=bridge)[0].tolist() == first_rows


def test_a_window_keeps_every_flag_and_a_loader_only_if_it_was_the_only_one() -> None:
    rows = as_rows([step_row(0, start_ns=0), step_row(1, start_ns=10 * MS, flags=FLAG_SKIPPED_UPDATE, loader=1)])
    _, folded = fold(rows, SECOND_NS, 0.01, bridge=False)
    window = dict(zip(COLUMNS, folded[0].tolist(), strict=True))
    assert (window["flags"], window["loader"], window["count"], window["samples"]) == (FLAG_SKIPPED_UPDATE, -1, 2, 64)


def test_sums_stay_and_what_takes_longest_stays_alone() -> None:
    took_ms = {3: 40, 7: 50}
    rows = as_rows([step_row(n, start_ns=n * 50 * MS, took_ns=took_ms.get(n, 10) * MS) for n in range(10)])
    for share, alone in ((0.2, [3, 7]), (0.1, [7])):
        firsts, folded = fold(rows, SECOND_NS, share, bridge=False)
        counts = folded[:, COLUMNS.index("count")]
        assert [n for n in firsts[counts == 1].tolist() if n in took_ms] == alone
        assert counts.sum() == 10
        for name in ("forward_ns", "backward_ns", "samples"):
            assert folded[:, COLUMNS.index(name)].sum() == rows[:, COLUMNS.index(name)].sum()


@pytest.mark.parametrize(("flag", "kept"), [(FLAG_EPOCH_START, True), (FLAG_DEEP, True), (FLAG_SKIPPED_UPDATE, False)])
def test_first_steps_of_rare_epochs_and_steps_of_deep_windows_stay_alone(flag: int, kept: bool) -> None:
    rows = as_rows([step_row(n, start_ns=n * 10 * MS, flags=flag if n == 5 else 0) for n in range(10)])
    firsts, _ = fold(rows, SECOND_NS, 0.1, bridge=False)
    assert firsts.tolist() == ([0, 5, 6] if kept else [0])


def test_windows_end_with_their_second() -> None:
    rows = as_rows([step_row(n, start_ns=n * 300 * MS, took_ns=300 * MS) for n in range(8)])
    firsts, folded = fold(rows, SECOND_NS, 0.01, bridge=False)
    assert firsts.tolist() == [0, 4, 7]
    assert folded[:, COLUMNS.index("t_end_ns")].tolist() == [1200 * MS, 2100 * MS, 2400 * MS]
