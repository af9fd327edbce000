"""Memory on the GPU as torch's allocator counts it: how full it is, and whether it grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu_recordings import cuda, on_gpus
from recordings import FIRST_STEP_NS, SECOND, gpu_steps, plan, recording, table
from rn50_advisor.advisor.analysis.gpu.gpu_memory import device_memory, gpu_memory, unexplained_values
from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_FOREIGN_PROCESSES
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Series
from rn50_advisor.probes.rank.layout import GPU_STEP_FIELDS


def looks(allocated: list[float], **given: float) -> Any:
    """The allocator in MB, every tenth step; between the looks -1."""
    rows = gpu_steps([{"step": n, "forward": 30} for n in range(len(allocated) * 10)])
    for name, value in {"allocated": -1, "reserved": -1, "peak": -1}.items():
        rows[f"{name}_bytes"] = value
    rows["alloc_retries"] = -1
    at = slice(0, None, 10)
    rows["allocated_bytes"][at] = [round(mb * 1e6) for mb in allocated]
    rows["reserved_bytes"][at] = round(given.get("reserved", 20_000) * 1e6)
    rows["peak_bytes"][at] = round(given.get("peak", 15_000) * 1e6)
    rows["alloc_retries"][at] = [round(n * given.get("retries", 0)) for n in range(len(allocated))]
    return rows


def test_how_full_the_gpu_is_by_torchs_own_count() -> None:
    facts = {101: cuda("00000001-aaaa", memory_bytes=25_000_000_000)}
    found = on_gpus(facts=facts, gpu_steps={1: looks([10_000.0] * 9, retries=2)})
    assert found.by_rank("gpu.reserved_share") == {1: pytest.approx(0.8)}
    assert found.by_rank("gpu.peak_share") == {1: pytest.approx(0.6)}
    assert found.by_rank("gpu.fragmented_share") == {1: pytest.approx(0.25)}
    assert found.by_rank("gpu.alloc_retries")[1] == 14  # those of the warm-up, at the first look, are left out
    assert found.by_rank("gpu.memory_watched") == {1: 8}


def test_memory_that_grows_by_so_much_a_step() -> None:
    made = recording({1: plan(900)}, gpu_steps={1: looks([10_000 + 20.0 * n for n in range(90)])})
    (trend,) = analyse(made).gpu_view.memory
    assert trend.mb_per_step == pytest.approx(2.0)
    assert trend.growth > 0.1 and trend.thirds_mb[0] < trend.thirds_mb[1] < trend.thirds_mb[2]
    assert trend.left_mb is None  # the size of the GPU is unknown


@pytest.mark.parametrize(
    ("work", "times"),
    [
        ([[3, 1000, 7, 50_000_000], [400, 1000, 7, 78_000_000], [600, 1000, 7, 154_000_000]], 154 / 50),
        # its batch was not seen as other layers began to learn: it is as large as before
        ([[3, 1000, 7, 50_000_000], [500, 2000, 7, 0]], 1.0),
        ([[3, 1000, 7, 0]], 1.0),
        ([], 1.0),
    ],
)
def test_batches_that_grow_with_what_is_held(work: list[list[int]], times: float) -> None:
    held = [10_000 + 20.0 * n for n in range(90)]
    made = recording({1: plan(900)}, gpu_steps={1: looks(held)}, facts={101: {"work": work}})
    (trend,) = analyse(made).gpu_view.memory
    assert trend.batch_times == pytest.approx(times)


def test_no_allocator_no_values() -> None:
    found = on_gpus(gpu_steps={1: gpu_steps([{"step": n, "forward": 30} for n in range(90)])})
    assert not found.has("gpu.memory_watched")


def trends(held_mb: list[float], **facts: Any) -> tuple[Any, ...]:
    made = recording({1: plan(900)}, gpu_steps={1: looks(held_mb)}, facts={101: facts} if facts else {})
    return gpu_memory(made, steady_steps(all_steps(made)), ())[1]


def test_caches_that_fill_at_first_are_no_growth() -> None:
    (trend,) = trends([100.0 * min(n, 20) for n in range(90)])
    assert trend.mb_per_step == pytest.approx(0.0) and trend.thirds_mb == (2000.0, 2000.0, 2000.0)
    assert trend.steps == pytest.approx(660) and trend.seconds == pytest.approx(66.0), "after a quarter of the looks"


def test_what_is_left_is_counted_from_the_last_look() -> None:
    (trend,) = trends([10_000 + 20.0 * n for n in range(90)], cuda={"memory_bytes": 20_000_000_000})
    assert trend.left_mb == pytest.approx(20_000 - 11_780)
    (full,) = trends([10_000.0] * 90, cuda={"memory_bytes": 9_000_000_000})
    assert full.left_mb == 0.0


@pytest.mark.parametrize("count", [1, 6])
def test_a_few_readings_make_no_trend(count: int) -> None:
    made = recording({1: plan(10 * count)}, gpu_steps={1: looks([10_000.0] * count)})
    assert gpu_memory(made, steady_steps(all_steps(made)), ())[1] == ()


def test_peaks_of_the_warm_up_count_for_the_device() -> None:
    rows = looks([10_000.0] * 9)
    rows["peak_bytes"][0] = 19_000_000_000
    held = {"parameter_bytes": 100, "state_bytes": 200}
    rank_facts = {100: {}, 101: {"cuda": {"memory_bytes": 25_000_000_000}, "optimizer": held}}
    (found,) = device_memory(recording({0: plan(90), 1: plan(90)}, gpu_steps={1: rows}, facts=rank_facts))
    assert (found.rank, found.peak, found.reserved, found.total) == (1, 19e9, 20e9, 25e9)
    assert (found.parameters, found.gradients, found.state) == (100.0, None, 200.0)
    assert device_memory(recording({0: plan(90)})) == ()


GB = 1_000_000_000
TIMES = FIRST_STEP_NS + SECOND * np.arange(5)


def unexplained(
    used_gb: Mapping[int, float], reserved_gb: Mapping[int, float], *, listed: bool = False
) -> dict[int, float]:
    """Unexplained GB of each GPU, which has the rank of its number."""
    made: Recording = recording(dict.fromkeys(used_gb, plan(40)))
    sizes = {
        rank: table(
            (*GPU_STEP_FIELDS, "flags"),
            [{"step": n, "reserved_bytes": round(gb * GB) if n % 2 else -1} for n in range(40)],
        )
        for rank, gb in reserved_gb.items()
    }
    samples = {("gpu.mem_used_bytes", f"gpu:{n}"): Series(TIMES, np.full(5, gb * GB)) for n, gb in used_gb.items()}
    made = replace(made, gpu_steps=sizes, samples=samples)
    gpus = tuple(Gpu(index=n, name="A100", uuid=str(n), ranks=(n,), mem_total_bytes=40 * GB) for n in used_gb)
    known = Measured({(GPU_FOREIGN_PROCESSES, n): 0.0 for n in used_gb} if listed else {})
    found = unexplained_values(made, Window(made, int(TIMES[0]), int(TIMES[-1])), gpus, known)
    return {index: round(mb / 1000, 3) for (_, index), mb in found.items()}


def test_what_one_gpu_holds_beyond_the_others_is_not_the_jobs() -> None:
    assert unexplained({0: 18.0, 1: 24.0, 2: 17.5}, {0: 16.0, 1: 16.0, 2: 15.5}) == {0: 0.0, 1: 6.0, 2: 0.0}


def test_the_only_gpus_context_may_be_large() -> None:
    assert unexplained({0: 18.9}, {0: 16.0}) == {0: 0.0}
    assert unexplained({0: 25.0}, {0: 16.0}) == {0: pytest.approx(6.0)}


def test_nothing_is_said_where_processes_are_listed_or_an_allocator_tells_nothing() -> None:
    assert unexplained({0: 25.0}, {0: 16.0}, listed=True) == {}
    assert unexplained({0: 25.0}, {}) == {}
