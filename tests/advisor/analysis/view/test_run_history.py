"""The run in equal slices: phases and lateness of its ranks, readings of its GPUs, and what a live screen keeps of earlier readings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aged_runs import aged
from recordings import FIRST_STEP_NS, SECOND, plan, recording, series
from rn50_advisor.advisor.analysis.comm.buffer_waits import accounted_steps
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.view.run_history import (
    SLICES_MAX,
    joined,
    phases_over_time,
    run_history,
    slice_edges,
)
from rn50_advisor.advisor.model.history import GpuHistory, History
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.replay import cut
from rn50_advisor.probes.rank.layout import FLAG_NO_LOADER


def history(made: Recording) -> History:
    found = analyse(made).history
    assert found is not None
    return found


def test_phases_of_a_slice_sum_to_its_step_and_change_when_the_job_does() -> None:
    made = recording({0: [*plan(100), *plan(100, input_wait=110)]})
    everything = accounted_steps(made)
    edges = slice_edges(made, everything)
    own = phases_over_time(made, everything, edges)[0]
    assert own["input_wait"][0] == pytest.approx(0.01)
    assert own["input_wait"][-1] == pytest.approx(0.11)
    assert sum(values[0] for values in own.values()) == pytest.approx(0.1)
    assert sum(values[-1] for values in own.values()) == pytest.approx(0.2)
    found = history(made)
    assert found.step_s[0][0] == pytest.approx(0.1) and found.step_s[0][-1] == pytest.approx(0.2)
    assert sum(found.steps[0]) == pytest.approx(200), "no step is lost or counted twice"


def test_a_stretch_without_steps_is_unknown() -> None:
    early = recording({0: plan(100)})
    made = replace(early, meta=replace(early.meta, last_ns=early.meta.last_ns + 30 * SECOND, ended_ns=None))
    found = history(made)
    assert found.step_s[0][0] == pytest.approx(0.1)
    assert found.step_s[0][-1] is None and found.phases["forward"][-1] is None


def test_a_long_step_is_long_in_all_of_its_slices() -> None:
    made = recording({0: [*plan(100), *plan(1, forward=5000), *plan(100)]})
    curve = [value for value in history(made).step_s[0] if value is not None]
    assert sum(value > 4.0 for value in curve) * history(made).slice_s == pytest.approx(5.0, abs=0.6)


def test_without_a_loader_the_forward_may_include_the_fetch() -> None:
    made = recording({0: plan(40, flags=0)})
    bare = recording({0: plan(40, input_wait=0, flags=FLAG_NO_LOADER)})
    assert "forward" in history(made).phases
    assert "input_or_forward" in history(bare).phases and "forward" not in history(bare).phases


def test_the_late_rank_is_late_in_its_slices_and_the_others_are_not() -> None:
    slow = [*plan(60), *plan(60, forward=60)]
    found = history(recording({0: plan(120), 1: plan(120), 2: slow}))
    assert found.late_s[2][-1] == pytest.approx(0.03, rel=0.05)
    assert found.late_s[2][0] == pytest.approx(0.0, abs=1e-3)
    assert max(value or 0.0 for value in found.late_s[0]) < 1e-3


def test_lateness_is_known_where_steps_are_folded() -> None:
    found = history(aged(recording({0: plan(2000), 1: plan(2000, forward=60)}), 400))
    assert found.late_s[1][2] == pytest.approx(0.03, rel=0.1)
    assert found.late_s[0][2] == pytest.approx(0.0, abs=2e-3)


def test_gpus_have_only_the_readings_that_were_measured() -> None:
    samples = {
        ("gpu.util_pct", "gpu:0"): series(*((t, 90.0 if t < 5 else 40.0) for t in range(10))),
        ("gpu.temp_c", "gpu:0"): series((0.1, 50.0), (5.0, 60.0), (9.9, 60.0)),
    }
    (gpu,) = history(recording({0: plan(100)}, samples=samples)).gpus
    assert gpu.util_pct[0] == 90.0 and gpu.util_pct[-1] == 40.0
    assert gpu.temp_c[4] == 50.0, "the last reading holds until the next"
    assert gpu.sm_clock_mhz == () and gpu.mem_used_bytes == ()


@pytest.mark.parametrize(("ranks", "most"), [(1, 240), (64, 240), (500, 120)])
def test_slices_are_bounded(ranks: int, most: int) -> None:
    rows = recording({0: plan(3000)}).steps[0]
    made = recording({0: plan(1)})
    everything = accounted_steps(replace(made, steps=dict.fromkeys(range(ranks), rows)))
    assert slice_edges(made, everything).size == most + 1


def test_before_the_first_step_there_is_nothing() -> None:
    assert run_history(recording({}), {}, {}, None) is None
    assert analyse(recording({})).history is None


def test_what_was_seen_before_stays_when_only_the_latest_steps_are_read() -> None:
    made = recording({0: [*plan(300, input_wait=60), *plan(300)]})
    recent = replace(made, steps={0: made.steps[0][-200:]})
    early = history(cut(made, FIRST_STEP_NS + 30 * SECOND))
    both = joined(early, history(recent))
    assert both is not None
    assert both.start_s == early.start_s and both.slices <= SLICES_MAX
    assert both.step_s[0][0] == pytest.approx(0.15) and both.step_s[0][-1] == pytest.approx(0.1)
    assert both.phases["input_wait"][0] == pytest.approx(0.06)
    assert both.phases["input_wait"][-1] == pytest.approx(0.01)
    assert joined(None, early) is early and joined(early, None) is early


def test_a_history_that_grows_for_hours_stays_bounded_and_loses_no_step() -> None:
    kept: History | None = None
    for minute in range(600):
        part = History(
            max(0.0, 60.0 * minute - 120.0) if minute > 2 else 0.0,
            1.0,
            phases={"forward": (0.1,) * 180},
            steps={0: (10.0,) * 180},
            step_s={0: (0.1 + 0.1 * (minute > 300),) * 180},
            gpus=(GpuHistory(0, util_pct=(50.0,) * 180),),
        )
        kept = joined(kept, part)
    assert kept is not None
    assert kept.slices <= SLICES_MAX
    assert kept.step_s[0][0] == pytest.approx(0.1) and kept.step_s[0][-1] == pytest.approx(0.2)
    assert np.sum(kept.steps[0]) == pytest.approx(10.0 * (kept.end_s - kept.start_s), rel=0.05)
    assert kept.gpus[0].util_pct[0] == pytest.approx(50.0) and kept.gpus[0].temp_c == ()


def test_a_rank_that_was_lost_keeps_its_past() -> None:
    early = History(0.0, 1.0, steps={0: (5.0,) * 20, 1: (5.0,) * 20}, step_s={0: (0.2,) * 20, 1: (0.2,) * 20})
    late = History(10.0, 1.0, steps={0: (5.0,) * 20}, step_s={0: (0.1,) * 20})
    both = joined(early, late)
    assert both is not None
    assert both.step_s[1][5] == pytest.approx(0.2) and both.step_s[1][25] is None
    assert both.step_s[0][5] == pytest.approx(0.2) and both.step_s[0][25] == pytest.approx(0.1)
