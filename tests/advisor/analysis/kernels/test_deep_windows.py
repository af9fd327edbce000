"""Deep windows in a run: their steps count nowhere, and what they saw are values that rules may ask for."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from deep_events import deep_window, event
from recordings import FIRST_STEP_NS, folded, plan, recording
from rn50_advisor.advisor.analysis.kernels.kernel_windows import window_of
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.gpu.kernel_classes import CLASS_TITLES, IDLE_CAUSES
from rn50_advisor.advisor.model.measures import MEASURES
from rn50_advisor.advisor.model.recording import Event, Recording
from rn50_advisor.probes.rank.layout import FLAG_DEEP
from traces import TraceBook, convolution

# steps of 10 ms, as those of the window
TENTH = plan(input_wait=1, forward=3, backward=5, optimizer=1)
GPU_FACTS = {100: {"rank": 0, "cuda": {"name": "NVIDIA A100-SXM4-80GB"}}}


def slow_window(ranks: int) -> Recording:
    """Thirty steps of 100 ms; rank 0 was looked into at steps 10 to 12, which took ten times as long, and the others waited."""
    plans = {rank: plan() for rank in range(ranks)}
    for number in (10, 11, 12):
        plans[0][number] = {**plans[0][number], "forward": 930.0, "flags": FLAG_DEEP}
    return recording(plans, wire_ms=1.0 if ranks > 1 else 0.0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_of_a_window_are_not_the_jobs_on_no_rank(ranks: int) -> None:
    found = analyse(slow_window(ranks))
    without = analyse(recording({rank: plan() for rank in range(ranks)}, wire_ms=1.0 if ranks > 1 else 0.0))
    assert found.step_time.steady_steps == without.step_time.steady_steps - 3
    assert found.step_time.median_s == without.step_time.median_s
    assert found.get("step.time_s") == pytest.approx(without.get("step.time_s"))
    assert found.budget.critical == pytest.approx(without.budget.critical)
    assert not found.changes and found.pulse is None
    [segment] = [segment for segment in found.segments if segment.kind == "deep window"]
    assert (segment.first_step, segment.last_step) == (10, 12)
    assert segment.end_s - segment.start_s == pytest.approx(3.0, abs=0.01)


def test_a_step_of_a_window_is_never_folded_with_others() -> None:
    made = slow_window(1)
    rows = folded(made.steps[0], 5, 25)
    deep = rows[(rows["flags"] & FLAG_DEEP) != 0]
    assert deep["count"].tolist() == [1, 1, 1] and deep["step"].tolist() == [10, 11, 12]
    assert np.sum(rows["count"]) == 30
    found = analyse(replace(made, steps={0: rows}))
    assert found.get("step.time_s") == pytest.approx(0.1)


def test_what_a_window_on_a_gpu_saw_are_values_of_its_rank() -> None:
    found = analyse(recording({0: TENTH}, events=(event(deep_window()),), facts=GPU_FACTS))
    assert found.value("kernel.window_steps", 0) == 2
    assert found.value("kernel.conv_share", 0) == pytest.approx(0.5)
    assert found.value("kernel.optimizer_share", 0) == pytest.approx(0.125)
    assert found.value("kernel.tensor_core_share", 0) == 1.0
    assert found.value("kernel.busy_share", 0) == pytest.approx(0.8)
    assert found.value("kernel.idle_share", 0) == pytest.approx(0.2)
    shares = [found.value(f"kernel.idle_{cause}_share", 0) for cause in IDLE_CAUSES]
    assert sum(shares) == pytest.approx(0.2)
    kinds = [found.values.get((f"kernel.{kind}_share", 0), 0.0) for kind in CLASS_TITLES]
    assert sum(kinds) == pytest.approx(1.0)
    assert {name for name, _ in found.values if name.startswith("kernel.")} <= set(MEASURES)
    assert "kernel.window_steps" not in found.missing


@pytest.mark.parametrize(
    ("usual_ms", "launch_share", "busy_share"), [(10, 0.2, 0.8), (9, 1 / 9, 8 / 9), (8, 0.0, 1.0), (20, 0.2, 0.8)]
)
def test_what_the_profiler_itself_slowed_down_is_no_wait_for_launches(usual_ms, launch_share, busy_share) -> None:
    steps = plan(input_wait=0, forward=0, backward=usual_ms, optimizer=0)
    found = analyse(recording({0: steps}, events=(event(deep_window()),), facts=GPU_FACTS))
    assert found.value("kernel.idle_launch_share", 0) == pytest.approx(launch_share)
    assert found.value("kernel.idle_share", 0) == pytest.approx(launch_share)
    assert found.value("kernel.busy_share", 0) == pytest.approx(busy_share)


def test_the_profilers_slowness_is_taken_from_waits_as_from_launches() -> None:
    made = replace(deep_window(), idle={"sync": 0.0015, "launch": 0.0005})  # 2 of 10 ms
    steps = plan(input_wait=0, forward=0, backward=9, optimizer=0)
    found = analyse(recording({0: steps}, events=(event(made),), facts=GPU_FACTS))
    shares = [found.value(f"kernel.idle_{cause}_share", 0) for cause in ("sync", "launch")]
    assert shares == pytest.approx([0.75 / 9, 0.25 / 9])


def test_operators_of_a_cpu_are_shown_and_are_no_kernels() -> None:
    book = TraceBook()
    for begin in (0.0, 1000.0, 2000.0):
        book.mark(begin)
        convolution(book, begin + 100, 300, kind="float")
    window = window_of(book.document(), rank=0, first_step=10)
    found = analyse(recording({0: plan()}, events=(event(window),)))
    assert found.facts["deep"][0]["device"] == "cpu"
    assert not [name for name, _ in found.values if name.startswith("kernel.")]
    assert found.missing["kernel.window_steps"] == "no CUDA device: there are no kernels"


def test_without_a_window_the_reason_names_the_option_for_one() -> None:
    found = analyse(recording({0: plan()}, facts=GPU_FACTS))
    assert found.missing["kernel.window_steps"] == "not profiled: run with --deep for kernels by class and idle time"
    assert "deep" not in found.facts


@pytest.mark.parametrize("data", [{}, {"rank": 0}, {**asdict(deep_window()), "classes": {"conv": "much"}}, {"new": 1}])
def test_a_window_of_another_version_is_passed_over(data) -> None:
    found = analyse(recording({0: plan()}, events=(Event(FIRST_STEP_NS, "deep", 100, 0, data),), facts=GPU_FACTS))
    assert "deep" not in found.facts


def test_in_a_merged_run_the_events_rank_counts() -> None:
    moved = replace(event(deep_window(0)), rank=1)
    found = analyse(recording({0: plan(), 1: plan()}, events=(moved,), facts=GPU_FACTS))
    assert [w["rank"] for w in found.facts["deep"]] == [1] and found.get("kernel.window_steps", 1) == 2


def test_of_several_windows_of_a_rank_the_last_counts() -> None:
    windows = (deep_window(1), deep_window(0), replace(deep_window(0), first_step=99))
    found = analyse(recording({0: plan(), 1: plan()}, events=tuple(map(event, windows)), facts=GPU_FACTS))
    assert [(w["rank"], w["first_step"]) for w in found.facts["deep"]] == [(0, 99), (1, 10)]


def test_copies_have_a_value_where_the_window_counted_them() -> None:
    counted = event(replace(deep_window(), copy_s=0.0011))
    older = replace(counted, data={key: value for key, value in counted.data.items() if key != "copy_s"})
    found, before = (analyse(recording({0: TENTH}, events=(e,), facts=GPU_FACTS)) for e in (counted, older))
    assert found.get("kernel.copy_s", 0) == pytest.approx(0.0011) and before.get("kernel.copy_s", 0) is None
    assert found.value("kernel.conv_share", 0) == before.value("kernel.conv_share", 0)
