"""Errors that the driver reported of GPUs and NVLinks over the whole run, and which links should be up."""

from __future__ import annotations

import pytest

from gpu_recordings import A100, cuda, device, levels, of, on_gpus
from recordings import plan, recording, series, steady_counter
from rn50_advisor.advisor.analysis.pipeline import analyse


def test_errors_of_the_run_and_not_of_the_time_before() -> None:
    samples = {
        ("gpu.ecc_uncorrected", "gpu:0"): levels(7),
        ("gpu.ecc_uncorrected", "gpu:1"): series((0, 7), (5, 9)),
        ("gpu.row_remap_pending", "gpu:1"): series((0, 0), (5, 1)),
        ("gpu.xids", "gpu:1"): levels(2),
        ("gpu.xid", "gpu:1"): series((3, 13), (4, 79)),
        ("gpu.lost", "gpu:1"): series((0, 0), (9, 1)),
        ("gpu.lost", "gpu:0"): levels(0),
    }
    found = on_gpus(samples)
    assert of(found, "gpu.uncorrected_errors", 0) == 0 and of(found, "gpu.uncorrected_errors") == 2
    assert of(found, "gpu.row_remap_pending") == 1 and of(found, "gpu.lost") == 1
    assert of(found, "gpu.hardware_xids") == 1
    assert of(found, "gpu.errors_watched") == 4 and of(found, "gpu.errors_watched", 0) == 1
    xids = found.gpu_view.devices[1].xids
    assert [(xid.code, round(xid.t_s)) for xid in xids] == [(13, 5), (79, 6)]


def test_that_a_gpu_answers_is_no_error_looked_for() -> None:
    assert of(on_gpus({("gpu.lost", "gpu:1"): levels(0)}), "gpu.errors_watched") is None


def test_errors_are_known_before_any_step() -> None:
    environment = {"gpus": [device(0)]}
    samples = {("gpu.xids", "gpu:0"): levels(1), ("gpu.xid", "gpu:0"): series((0, 94))}
    made = recording({0: []}, meta={"environment": environment}, facts={100: cuda("00000000-aaaa")}, samples=samples)
    assert of(analyse(made), "gpu.hardware_xids", 0) == 1


def test_nvlinks_up_and_their_errors() -> None:
    samples = {
        ("gpu.nvlinks_active", "gpu:1"): series((0, 12), (5, 9)),
        ("gpu.nvlink_recoveries", "gpu:1"): steady_counter(2),
        ("gpu.nvlink_crc_errors", "gpu:1"): steady_counter(400),
    }
    found = on_gpus(samples, [device(0), device(1, nvlinks=12)])
    assert of(found, "gpu.nvlinks_active") == 9 and of(found, "gpu.nvlink_crc_per_s") == pytest.approx(400)
    assert of(found, "gpu.nvlink_recoveries") == 18  # until the last step
    assert of(found, "gpu.nvlinks_active", 0) == 0  # it has none, which is known
    assert of(on_gpus(devices=[device(0), device(1, nvlinks=None)]), "gpu.nvlinks_active") is None


L40S = "NVIDIA L40S"  # any board that takes a bridge


@pytest.mark.parametrize(
    ("name", "up", "due"),
    [
        (L40S, ((4, 4), (4, 4), (0, 0)), (4, 4, None)),  # whether the third has a bridge nobody knows
        (L40S, ((4, 4), (3, 3), (0, 0)), (4, 4, None)),  # of a bridge that is there a link is down
        (L40S, ((4, 4), (4, 0), (0, 0)), (4, 4, None)),  # it went down in the run
        (L40S, ((4, 0), (4, 0), (0, 0)), (4, 4, 0)),
        (L40S, ((0, 0), (0, 0), (0, 0)), (0, 0, 0)),  # no bridge
        (A100, ((12, 12), (12, 12), (0, 0)), (12, 12, 12)),  # there is no such board without links
        (A100, ((0, 0), (0, 0), (0, 0)), (12, 12, 12)),
    ],
)
def test_which_nvlinks_should_be_up(name: str, up: tuple[tuple[int, int], ...], due: tuple[float | None, ...]) -> None:
    devices = [device(n, name=name, nvlinks=12 if name == A100 else 4, nvlink_switched=False) for n in range(3)]
    samples = {("gpu.nvlinks_active", f"gpu:{n}"): series((0, a), (5, b)) for n, (a, b) in enumerate(up)}
    facts = {100 + n: cuda(f"0000000{n}-aaaa") for n in range(3)}
    environment = {"gpus": devices}
    made = recording({n: plan(90) for n in range(3)}, meta={"environment": environment}, facts=facts, samples=samples)
    found = analyse(made)
    assert tuple(of(found, "gpu.nvlinks_due", n) for n in range(3)) == due
    assert ("GPU 2: no NVLink is up" in found.missing.get("gpu.nvlinks_due", "")) == (None in due)


def test_xids_that_were_watched_for_a_while_only_are_not_none() -> None:
    early = {("gpu.xids", "gpu:0"): levels(0, 5), ("gpu.lost", "gpu:0"): levels(0, 90)}
    about = {"meta": {"environment": {"gpus": [device(0)]}}, "facts": {100: cuda("00000000-aaaa")}}
    assert of(analyse(recording({0: plan(900)}, samples=early, **about)), "gpu.hardware_xids", 0) is None
