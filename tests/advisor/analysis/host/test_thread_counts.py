"""Threads that want cores, and what DDP's search for unused parameters found: from facts and samples to values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import batches, plan, recording, series, steady_counter
from rn50_advisor.advisor.analysis.host.thread_counts import binding_lines
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Series, Source
from rn50_advisor.probes.rank.layout import FLAG_FIRST_BATCH

SCRIPT = "/job/train.py"
LOADER = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 2, "batch_size": 8}


def job(facts: dict[int, dict[str, Any]], **more: Any) -> Analysis:
    return analyse(recording({0: plan(90), 1: plan(90)}, facts=facts, **more))


def test_threads_and_waiting_threads_are_counted_by_rank() -> None:
    waiting = {("proc.threads_delay_s", "pid:101"): steady_counter(3.5)}
    analysis = job({100: {"threads": 4}, 101: {"threads": 8}}, samples=waiting)
    assert analysis.by_rank("threads.intra_op") == {0: 4.0, 1: 8.0}
    assert analysis.by_rank("threads.waiting") == pytest.approx({1: 3.5})


def with_workers(cpu: Series, made: list[dict[str, float]] | None = None) -> Analysis:
    """Two workers, whose processes compute so much; each makes a batch in a tenth of a second, of which it computes 60 ms."""
    each = made or [{"start": 0.1 * n, "wall": 90, "cpu": 60, "number": n} for n in range(80)]
    rows = [{**row, "worker": worker, "pid": 200 + worker} for row in each for worker in (0, 1)]
    samples = {("proc.cpu_s", f"pid:{pid}"): cpu for pid in (200, 201)}
    facts = {100: {"loaders": [LOADER]}}
    return analyse(recording({0: plan(80)}, batches={0: batches(rows)}, facts=facts, samples=samples))


def test_what_a_worker_computes_beside_the_thread_that_makes_batches_is_that_of_its_helpers() -> None:
    analysis = with_workers(steady_counter(1.5))
    assert analysis.by_rank("loader.helper_share") == {0: pytest.approx(0.6, abs=0.01)}
    assert analysis.by_rank("loader.helper_cores") == {0: pytest.approx(1.8, abs=0.03)}
    alone = with_workers(steady_counter(0.6))
    assert alone.by_rank("loader.helper_cores") == {0: pytest.approx(0.0, abs=0.02)}


def test_rows_that_a_long_run_no_longer_has_are_counted_as_made() -> None:
    thinned = [{"start": 0.1 * n, "wall": 90, "cpu": 60, "number": n} for n in range(0, 80, 4)]
    assert with_workers(steady_counter(0.6), thinned).by_rank("loader.helper_share") == {
        0: pytest.approx(0.0, abs=0.05)
    }


def test_what_a_worker_takes_to_import_is_no_helper() -> None:
    first = [{"start": 4.0, "wall": 500, "cpu": 400, "flags": FLAG_FIRST_BATCH}]
    late = first + [{"start": 4.6 + 0.1 * n, "wall": 90, "cpu": 60, "number": n + 1} for n in range(34)]
    cpu = series((0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 4.5), (6, 5.1), (7, 5.7), (8, 6.3))
    assert with_workers(cpu, late).by_rank("loader.helper_share") == {0: pytest.approx(0.0, abs=0.05)}


def test_workers_that_hardly_compute_have_no_helper_share() -> None:
    assert not with_workers(steady_counter(0.02)).has("loader.helper_share")


@pytest.mark.parametrize(
    ("model", "searched", "unused"),
    [
        ({"find_unused_parameters": 1, "searched_iterations": 40, "iterations_with_unused": 3}, 40.0, 3.0),
        ({"find_unused_parameters": 1}, 0.0, 0.0),
        ({"find_unused_parameters": 0, "searched_iterations": 40}, 0.0, 0.0),
        ({"find_unused_parameters": 1, "static_graph": 1, "searched_iterations": 40}, 0.0, 0.0),
    ],
)
def test_searches_are_those_of_models_that_search_in_each_step(
    model: dict[str, int], searched: float, unused: float
) -> None:
    analysis = job({100: {"ddp": [model]}})
    assert analysis.by_rank("ddp.searched") == {0: searched}
    assert analysis.by_rank("ddp.with_unused") == {0: unused}


def test_without_ddp_nothing_was_looked_at() -> None:
    analysis = job({100: {}})
    assert not analysis.has("ddp.searched") and "DistributedDataParallel" in analysis.missing["ddp.searched"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('import os\nos.environ["OMP_PROC_BIND"] = "true"\nimport torch\n', 2),
        ("os.environ.setdefault('GOMP_CPU_AFFINITY', '0')\n", 1),
        ('os.putenv("KMP_AFFINITY", "compact")\n', 1),
        ('# os.environ["OMP_PROC_BIND"] = "true"\n', None),
        ('if os.environ["OMP_PROC_BIND"] == "true":\n    pass\n', None),
        ('os.environ["OMP_NUM_THREADS"] = "1"\n', None),
    ],
)
def test_the_line_that_has_openmp_bind_its_threads(text: str, line: int | None) -> None:
    set_ones = {"OMP_PROC_BIND": "true", "GOMP_CPU_AFFINITY": "0", "KMP_AFFINITY": "compact"}
    bound = recording({0: plan(9)}, facts={100: {"binding_variables": set_ones}}, sources=(Source(SCRIPT, "", text),))
    assert [place["line"] for place in binding_lines(bound).values()] == ([] if line is None else [line])
    assert binding_lines(replace(bound, facts={100: {}})) == {}
