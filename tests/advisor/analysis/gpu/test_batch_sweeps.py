"""The cost of another batch size, from a benchmark of the same model on the same GPU."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from bench_samples import OPTIONS, machine
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.documents.benchmark import Benchmark, Sweep
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.run.machine_results import BENCH_NAME, known_sweeps
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.advisor.verdict.triage_evidence import without_triage
from rn50_advisor.rules.registry import all_rules

A100 = "NVIDIA A100-SXM4-40GB"
RESNET50 = {
    "rank": 0,
    "cuda": {"name": A100, "capability": [8, 0], "tf32_cudnn": True},
    "conv": {
        "autocast": "bfloat16",
        "weight": "float32",
        "shape": [8, 3, 224, 224],
        "input_layout": "channels_last",
        "weight_layout": "channels_last",
    },
    "optimizer": {"parameters": 161, "elements": 25_557_032},
}
# 10 ms whatever the batch, 2 ms a picture
BATCHES = (2, 4, 8, 16, 32)
RATES = tuple(batch / (0.010 + 0.002 * batch) for batch in BATCHES)
SWEEP = Sweep("bf16", True, 1, "synthetic", BATCHES, RATES, 32, None)
BENCH = Benchmark(0.0, replace(machine(), host=os.uname().nodename), OPTIONS, (), sweeps=(SWEEP,))


def beside(folder: Path, text: str) -> dict[str, Any]:
    (folder / BENCH_NAME).write_text(text)
    return known_sweeps(folder)


def trained(bench: dict[str, Any], **facts: Any) -> Analysis:
    """Eight pictures a step, and never another number."""
    rank_facts = {100: {**RESNET50, **facts}}
    return analyse(recording({0: plan(60)}, facts=rank_facts, meta={"environment": {"bench": bench} if bench else {}}))


def test_a_sweep_shows_the_part_that_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    found = trained(beside(tmp_path, json.dumps(BENCH.as_json())))
    assert found.by_rank("batch.fixed_share") == {0: pytest.approx(10 / 26)}
    assert found.by_rank("batch.sizes") == {0: 3} and found.by_rank("batch.benchmarked") == {0: 1}
    assert "batch.fixed_share" not in found.missing


@pytest.mark.parametrize(
    ("bench", "facts"),
    [
        pytest.param(replace(BENCH, options=replace(OPTIONS, model="resnet18")), {}, id="another model"),
        pytest.param(replace(BENCH, options=replace(OPTIONS, image_size=160)), {}, id="other pictures"),
        pytest.param(replace(BENCH, machine=machine(names=("NVIDIA H200",))), {}, id="another host"),
        pytest.param(BENCH, {"cuda": {**RESNET50["cuda"], "name": "NVIDIA H200"}}, id="another GPU"),
        pytest.param(replace(BENCH, sweeps=(replace(SWEEP, precision="fp16"),)), {}, id="another precision"),
        pytest.param(replace(BENCH, sweeps=(replace(SWEEP, channels_last=False),)), {}, id="another layout"),
        pytest.param(replace(BENCH, sweeps=(replace(SWEEP, devices=2),)), {}, id="several devices"),
        pytest.param(replace(BENCH, sweeps=(replace(SWEEP, batches=(16, 32, 64, 128, 256)),)), {}, id="larger batches"),
        pytest.param(replace(BENCH, sweeps=(replace(SWEEP, batches=(8,), images_per_s=(300.0,)),)), {}, id="one batch"),
        pytest.param(BENCH, {"optimizer": {"parameters": 161, "elements": 7}}, id="an unknown model"),
    ],
)
def test_a_benchmark_of_something_else_is_ignored(tmp_path: Path, bench: Benchmark, facts: dict[str, Any]) -> None:
    found = trained(beside(tmp_path, json.dumps(bench.as_json())), **facts)
    assert not found.by_rank("batch.fixed_share") and not found.by_rank("batch.benchmarked")
    assert "one size" in found.missing["batch.fixed_share"]


def swept(batches: tuple[int, ...], rates: tuple[float, ...], oom_at: int | None = None) -> dict[str, Any]:
    """As a run keeps it."""
    sweep = replace(SWEEP, batches=batches, images_per_s=rates, oom_at=oom_at)
    return {"model": OPTIONS.model, "image_size": OPTIONS.image_size, "device": A100, "sweeps": [asdict(sweep)]}


def test_all_of_a_sweep_is_kept_and_what_did_not_fit() -> None:
    curve = trained(swept(BATCHES, RATES, 64)).batch_curves[0]
    assert (curve.batch, curve.batches, curve.oom_at) == (8.0, tuple(map(float, BATCHES)), 64)
    assert curve.rate(32) == pytest.approx(RATES[-1]) and curve.rate(12) == pytest.approx(12 / 0.034)
    assert not trained({}).batch_curves


def test_rates_between_distant_sizes_are_interpolated() -> None:
    found = trained(swept((2, 32), (RATES[0], RATES[-1])))
    assert found.by_rank("batch.fixed_share") == {0: pytest.approx(10 / 26)}
    assert found.batch_curves[0].rate(8) == pytest.approx(8 / 0.026)


def test_of_a_step_of_several_batches_each_is_computed_by_itself() -> None:
    rank_facts = {100: RESNET50}
    bench = {"environment": {"bench": swept(BATCHES, RATES)}}
    made = analyse(recording({0: plan(60, samples=32, micro_batches=4)}, facts=rank_facts, meta=bench))
    assert made.batch_curves[0].batch == 8.0


def test_a_sweep_whose_rate_falls_at_four_times_the_batch_advises_twice() -> None:
    found = trained(swept((4, 8, 16, 32), (200.0, 300.0, 520.0, 430.0)))
    seen = replace(found, values={**found.values, ("gpu.peak_share", 0): 0.2})
    result = run_rule(next(rule for rule in all_rules() if rule.id == "CMP005"), seen, Config())
    assert isinstance(result, Finding) and result.fixes[0].change == "DataLoader(..., batch_size=16)"
    assert result.saving is not None and result.saving.speedup[1] < 520 / 300


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '{"schema": "rn50-advisor/bench/9"}'])
def test_any_other_file_beside_the_runs_is_left_alone(tmp_path: Path, text: str) -> None:
    assert known_sweeps(tmp_path) == {}
    assert beside(tmp_path, text) == {}


def test_a_report_names_the_benchmarked_model_alone() -> None:
    assert without_triage({"bench": {"model": "resnet50", "sweeps": [1]}}) == {"bench": "resnet50"}
