"""CPU009, too few compute threads: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cpu009(
    threads: float = 1.0,
    idle: float = 12.0,
    tensor_ms: float = 10.0,
    *,
    ranks: int = 2,
    cores: float = 16.0,
    elements: int | None = 10_000_000,
    samples: float | None = 64.0,
    gpu: bool = False,
    beside: dict[str, Any] | None = None,
    **more: Any,
) -> Analysis:
    """Ranks that compute for their whole step of one second, with so many threads; the parameters are in tensors of so much computing."""
    numbers = range(ranks)
    values: dict[str, Any] = {
        "threads.intra_op": dict.fromkeys(numbers, threads),
        "cpu.host_busy_cores": cores - idle,
        **(beside or {}),
    }
    held = {} if elements is None else {"elements": elements, "parameters": round(1000 / tensor_ms)}
    facts = {
        str(n): {"optimizer": {"class": "SGD", **held}, **({"cuda": {"index": n}} if gpu else {})} for n in numbers
    }
    made = job({n: rank() for n in numbers}, **{"values": values, "facts": facts, "cores": cores, **more})
    known = {name: value for name, value in made.values.items() if name[0] != "step.samples"}
    return replace(made, values=known if samples is None else {**known, ("step.samples", "job"): samples})


TWO_CORES: dict[str, Any] = {"cores": 2.0, "ranks": 1, "idle": 0.97}

TABLE = Table(
    "CPU009",
    cpu009,
    lines={
        "idle": ({"idle": 2.0}, {"idle": 1.99}),
        "idle_alone": ({**TWO_CORES, "idle": 0.86}, {**TWO_CORES, "idle": 0.84}),
        "times": ({"threads": 4.0}, {"threads": 4.01}),
        "tensor": ({"tensor_ms": 0.2501}, {"tensor_ms": 0.2499}),
    },
    false_alarms={
        "the model trains on GPUs": {"gpu": True},
        "a core for each thread": {"threads": 8.0},
        "more ranks than cores": {"ranks": 20},
        "loader workers use the other cores": {"idle": 1.0},
        "a small model": {"tensor_ms": 0.05},
        "a layer that is called in a loop": {"beside": {"step.operations": {0: 4001.0, 1: 4001.0}}},
        "a few rows on large weights": {"samples": 4.0, "elements": 500_000_000},
        "two ranks on two cores": {"cores": 2.0, "ranks": 2, "idle": 1.0},
        "two cores, and another rank on another host": {**TWO_CORES, "beside": {"comm.joined": 2.0}},
        "two cores, one of them for a worker": {**TWO_CORES, "beside": {"loader.workers": {0: 1.0}}},
        "two cores, and a neighbour while the rank sleeps": {**TWO_CORES, "beside": {"cpu.other_cores": 0.4}},
        "two cores, and a helper of the job": {**TWO_CORES, "beside": {"cpu.helper_cores": 0.4}},
        "two cores and a small model": {**TWO_CORES, "tensor_ms": 0.05},
        "two cores and a GPU": {**TWO_CORES, "gpu": True},
    },
    severities=(
        ({}, "critical"),
        ({"tensor_ms": 1.0}, "high"),
        ({"tensor_ms": 1.0, "cores": 4.0, "idle": 2.0}, "medium"),
    ),
    also_fires={
        "a few rows that are large pictures": {"samples": 2.0},
        "one rank": {"ranks": 1},
        "one rank on two cores": TWO_CORES,
        "one rank that joined a group of its own": {**TWO_CORES, "beside": {"comm.joined": 1.0}},
    },
    not_measured={
        "sharded parameters": ({"elements": None}, ("optimizer",)),
        "large weights and a batch of unknown size": ({"samples": None, "elements": 500_000_000}, ("step.samples",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("ranks", "idle", "threads"), [(1, 15.0, 16), (2, 14.0, 8), (2, 6.0, 4), (3, 13.0, 5), (4, 12.0, 4)]
)
def test_cpu009_gives_each_rank_its_share_of_the_idle_cores(ranks: int, idle: float, threads: int) -> None:
    finding = found("CPU009", cpu009(ranks=ranks, idle=idle))
    assert finding.fixes[0].title.startswith(
        f"torch.set_num_threads({threads}), or OMP_NUM_THREADS={threads} for the job"
    )


@pytest.mark.parametrize(("cores", "idle", "threads"), [(2.0, 0.97, 2), (4.0, 2.96, 4), (4.0, 1.5, 2), (4.0, 1.9, 3)])
def test_cpu009_gives_a_rank_alone_whole_cores(cores: float, idle: float, threads: int) -> None:
    """The advisor and the system take a few hundredths of a core."""
    finding = found("CPU009", cpu009(ranks=1, cores=cores, idle=idle))
    assert finding.fixes[0].title.startswith(
        f"torch.set_num_threads({threads}), or OMP_NUM_THREADS={threads} for the job"
    )


@pytest.mark.parametrize(
    ("tensor_ms", "came"), [(10.0, (1.43, 1.94)), (1.0, (1.17, 1.68))], ids=["large tensors", "small tensors"]
)
def test_cpu009_predicts_the_measured_gain_of_two_threads(tensor_ms: float, came: tuple[float, float]) -> None:
    """`came`: the least and the most by which models were faster with two threads than with one."""
    saving = found("CPU009", cpu009(ranks=2, cores=4.0, idle=2.0, tensor_ms=tensor_ms)).saving
    assert saving is not None and saving.speedup[0] <= came[0] and saving.speedup[1] >= came[1]


def test_cpu009_is_low_beside_a_single_idle_core() -> None:
    assert found("CPU009", TABLE.job(**{**TWO_CORES, "idle": 0.95})).severity == "low"


def test_a_number_that_an_import_has_set_is_nobodys_choice() -> None:
    def with_setting(*, by_import: bool) -> Any:
        setting = {"threads": 1, "by_import": by_import, "file": "/job/vad.py", "line": 4}
        made = cpu009(**TWO_CORES)
        facts = {**made.facts, "0": {**made.facts["0"], "threads_set": setting}}
        return found("CPU009", replace(made, facts=facts))

    imported, chosen = with_setting(by_import=True), with_setting(by_import=False)
    assert chosen.severity == "low" and imported.severity != "low"
    assert imported.fixes[0].where is not None and imported.fixes[0].where.line == 4
