"""The sentences that sum up a benchmark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench_samples import A100, OPTIONS, cell, machine, measured, setting
from rn50_advisor.advisor.bench.bench_plan import BenchPlan, carry_out
from rn50_advisor.advisor.bench.conclude import conclude
from rn50_advisor.advisor.model.documents.benchmark import Cell, Machine, Setting
from rn50_advisor.advisor.model.documents.comparison import Estimate


def test_ranks_on_one_cpu_are_not_held_against_cores_of_their_own() -> None:
    cells = [measured(setting("fp32", True, 32, ranks), rate) for ranks, rate in ((1, 100.0), (2, 95.0))]
    said = conclude(machine("cpu"), OPTIONS, cells, made_unix_s=0.0).sentences
    assert any("2 ranks make 95 % of what one makes" in s for s in said) and not any("single ones" in s for s in said)


@pytest.mark.parametrize("every", [False, True], ids=["one at a time", "every combination"])
def test_a_small_gain_of_mixed_precision_on_real_data_has_its_reason(every: bool) -> None:
    """Twice as fast where it is fed; 2,100 images/s where the loader makes no more."""

    def measure(wanted: Setting) -> Cell:
        alone = 1900.0 if wanted.precision == "fp32" else 3800.0
        if wanted.data == "synthetic" or alone < 2100:
            return measured(wanted, alone)
        return measured(wanted, 2100.0, rule="DAT001", title="Preprocessing exhausts the CPUs")

    plan = BenchPlan(("fp32", "bf16"), (True, False), 64, (), (1,), ("synthetic", "real"), every)
    said = conclude(A100, OPTIONS, carry_out(plan, measure), made_unix_s=0.0).sentences
    where = "bf16, channels-last, batch 64, 1 device"
    assert f"bf16 brings 2.00× over fp32 at 3,800 images/s ({where})" in said
    assert (
        f"bf16 brings only 1.11× over fp32 at 2,100 images/s ({where}, real data): Preprocessing exhausts the CPUs (DAT001)"
        in said
    )


def said(*cells: Cell, on: Machine = A100) -> tuple[str, ...]:
    return conclude(on, OPTIONS, cells, made_unix_s=0.0).sentences


def test_where_nothing_was_measured_that_is_all() -> None:
    assert said() == said(cell(setting("fp32", True, 8), state="oom")) == ("nothing could be measured",)


def test_the_fastest_comes_first() -> None:
    first, *_ = said(measured(setting("fp32", True, 8), 50.0), measured(setting("fp32", True, 16), 2310.4))
    assert first == "fastest: 2,310 images/s with fp32, channels-last, batch 16, 1 device"


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (1.5, "channels-last is 1.50× channels-first in fp32 (fp32, channels-last, batch 8, 1 device)"),
        (0.9, "channels-last is 0.90× channels-first in fp32 (fp32, channels-last, batch 8, 1 device)"),
        (1.02, None),
    ],
)
def test_a_layout_is_named_where_it_matters(rate: float, text: str | None) -> None:
    cells = [measured(setting("fp32", last, 8), 100.0 * (rate if last else 1.0)) for last in (True, False)]
    sentences = said(*cells, on=machine("cpu"))
    assert [one for one in sentences if "channels-first" in one and one.startswith("channels-last")] == (
        [text] if text else []
    )


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((50.0, 80.0, 100.0), "images/s still grow at batch 32 (fp32, channels-last, 1 device)"),
        ((50.0, 99.0, 100.0), "a batch beyond 16 gains less than 5 % (fp32, channels-last, 1 device)"),
        (
            (50.0, 100.0, 80.0),
            "a batch beyond 16 gains less than 5 % (fp32, channels-last, 1 device), and 32 loses 20 %",
        ),
    ],
)
def test_a_sweep_is_described_by_its_knee(rates: tuple[float, ...], text: str) -> None:
    cells = [measured(setting("fp32", True, 8 << n), rate) for n, rate in enumerate(rates)]
    assert text in said(*cells, on=machine("cpu"))
    more = cell(setting("fp32", True, 64), state="oom")
    assert f"{text}; 64 does not fit" in said(*cells, more, on=machine("cpu"))


def test_devices_that_scale_badly_have_their_reason() -> None:
    alone = measured(setting("fp32", True, 8), 100.0)
    bad = measured(setting("fp32", True, 8, 4), 200.0, rule="COM001", title="Network transfer limits the step")
    assert (
        "4 devices reach 50 % of 4 single ones (fp32, channels-last, batch 8, 4 devices): Network transfer limits the step (COM001)"
        in said(alone, bad)
    )
    good = replace(bad, images_per_s=Estimate(380.0, 370.0, 390.0))
    assert "4 devices reach 95 % of 4 single ones (fp32, channels-last, batch 8, 4 devices)" in said(alone, good)


@pytest.mark.parametrize(("rate", "share", "reason"), [(40.0, "40 %", ": Slow (DAT002)"), (97.0, "97 %", "")])
def test_real_data_are_held_against_synthetic_ones(rate: float, share: str, reason: str) -> None:
    real = measured(setting("fp32", True, 8, 1, "real"), rate, rule="DAT002", title="Slow")
    text = f"real data reach {share} of synthetic ones: {rate:.0f} images/s (fp32, channels-last, batch 8, 1 device, real data)"
    assert text + reason in said(measured(setting("fp32", True, 8), 100.0), real, on=machine("cpu"))


@pytest.mark.parametrize(
    ("rate", "place"),
    [(1200.0, "17 % below what is typical"), (2000.0, "what is typical"), (3000.0, "above what is typical")],
)
def test_a_known_gpu_is_held_against_what_others_measured(rate: float, place: str) -> None:
    text = f"{rate:,.0f} images/s is {place}: 1,450 to 2,470 (bf16, channels-last, batch 256, 1 device)"
    assert text in said(measured(setting("bf16", True, 256), rate))
