"""Ranks and GPUs that share a row, and those that must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.alike import ALIKE, alike_gpus, alike_ranks, one_gpu, one_rank
from rn50_advisor.advisor.model.report import RankStrip

RANKS = [RankStrip(n, 100 + n, True, "backward", 0.01, 500, 0.1, 0.1) for n in range(8)]


@pytest.mark.parametrize(
    "given",
    [
        {"alive": False, "phase": "exit 1"},
        {"step_s": 0.12},
        {"step_s": None},
        {"late_share": 0.6},
        {"phase_for_s": 5.0},
        {"step": 480},
    ],
)
def test_a_rank_that_differs_shares_no_row(given: dict[str, Any]) -> None:
    strips = [*RANKS[:7], replace(RANKS[7], **given)]
    assert [strip.rank for strip in alike_ranks(strips, ())] == list(range(7))


def test_ranks_that_are_named_elsewhere_keep_their_rows() -> None:
    assert [strip.rank for strip in alike_ranks(RANKS, {3, 5})] == [0, 1, 2, 4, 6, 7]
    assert alike_ranks(RANKS[:2], {1}) == [] and alike_ranks(RANKS[:1], ()) == [] and alike_ranks([], ()) == []


def test_the_shared_row_shows_what_most_ranks_do() -> None:
    row = one_rank([*RANKS[:6], replace(RANKS[6], phase="forward", host="a"), replace(RANKS[7], step=501)])
    assert (row.rank, row.phase, row.step, row.step_s, row.host) == (ALIKE, "backward", 500, 0.1, "2 hosts")


@pytest.mark.parametrize(
    "given", [{"trouble": "Xid 79"}, {"util_pct": 60.0}, {"temp_c": 91.0}, {"sm_clock_mhz": 900.0}]
)
def test_a_gpu_that_differs_shares_no_row(given: dict[str, Any]) -> None:
    gpus = [samples.gpu(n) for n in range(7)]
    assert len(alike_gpus([*gpus, replace(samples.gpu(7), **given)], ())) == 7
    assert len(alike_gpus([*gpus, samples.gpu(7)], {2})) == 7


def test_gpus_of_several_hosts_or_models_keep_their_rows() -> None:
    assert alike_gpus([samples.gpu(0), replace(samples.gpu(1), host="b")], ()) == []
    assert alike_gpus([samples.gpu(0), replace(samples.gpu(1), name="other")], ()) == []
    assert alike_gpus([samples.gpu(0)], ()) == []


def test_the_shared_gpu_has_the_median_of_each_reading() -> None:
    row = one_gpu([samples.gpu(n, 90.0 + n) for n in range(3)])
    assert (row.index, row.util_pct, row.temp_c) == (ALIKE, 91.0, 61.0)
