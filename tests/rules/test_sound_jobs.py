"""All rules over a job that nothing is wrong with, and over one with unmonitored GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gpu_rule_cases as gpu_jobs
import pace_rule_cases as pace_jobs
import rule_cases as jobs
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rule_cases import rank
from rule_runs import judged

SOUND_RANKS = {
    "gpu.memory_watched": {0: 60, 1: 60},
    "gpu.alloc_retries": {0: 0, 1: 0},
    "gpu.reserved_share": {0: 0.7, 1: 0.7},
    "gpu.peak_share": {0: 0.6, 1: 0.6},
    "gpu.near_cpu_share": {0: 0.5, 1: 0.5},
    "gpu.pairs": 1.0,
}


def test_a_healthy_job_gives_no_finding() -> None:
    own = {0: rank(0.97, input_wait=0.01, gap=0.01), 1: rank(0.98, input_wait=0.01, gap=0.01)}
    fine: dict[str, Any] = {
        "comm.skew_s": 0.01,
        "comm.wire_s": 0.02,
        "cpu.other_cores": 0.2,
        "cpu.steal_share": 0.0,
        "cpu.affinity_cores": 16.0,
        "copy.float_pictures_mb": {0: 0.0, 1: 0.0},
        "step.run_delay_s": {0: 0.01, 1: 0.01},
        "loader.workers": {0: 4, 1: 4},
        "loader.busy_share": {0: 0.6, 1: 0.6},
        "loader.helper_share": {0: 0.02, 1: 0.02},
        "loader.helper_cores": {0: 0.01, 1: 0.01},
        "fetch.wall_s": {0: 2.0, 1: 2.0},
        "fetch.cpu_share": {0: 0.9, 1: 0.9},
        "fetch.delay_share": {0: 0.0, 1: 0.0},
        "fetch.blocked_share": {0: 0.1, 1: 0.1},
        "fetch.read_mb": {0: 0.0, 1: 0.0},
        "gap.io_share": 0.5,
        **{name: {0: value, 1: value} for name, value in (("quota.cores", 4.0), ("quota.throttled_share", 0.0))},
        "quota.throttled_s_per_s": {0: 0.0, 1: 0.0},
        "threads.intra_op": {0: 1.0, 1: 1.0},
        "threads.waiting": {0: 0.1, 1: 0.1},
        "step.gc_s": {0: 0.001, 1: 0.001},
        "step.collection_s": {0: 0.0, 1: 0.0},
        "step.foreign_s": {0: 0.0, 1: 0.0},
        "step.elements_s": {0: 0.0, 1: 0.0},
        "step.repeated_s": {0: 0.0, 1: 0.0},
        "step.parts_s": {0: 0.0, 1: 0.0},
        "step.ignored_s": {0: 0.0, 1: 0.0},
        "step.unselected_s": {0: 0.0, 1: 0.0},
        "step.depthwise_s": {0: 0.0, 1: 0.0},
        "step.pixelwise_s": {0: 0.0, 1: 0.0},
        "step.long_kernels_s": {0: 0.0, 1: 0.0},
        "step.orders_s": {0: 0.0, 1: 0.0},
        "step.transforms_s": {0: 0.0, 1: 0.0},
        "step.repeated_rows_s": {0: 0.0, 1: 0.0},
        "step.prefix_s": {0: 0.0, 1: 0.0},
        "step.joined_s": {0: 0.0, 1: 0.0},
        "step.parametrized_s": {0: 0.0, 1: 0.0},
        "step.weight_computations": {0: 1.0, 1: 1.0},
        "step.searched_elements": {0: 0.0, 1: 0.0},
        "step.tracebacks_s": {0: 0.0, 1: 0.0},
        "step.rows_s": {0: 0.0, 1: 0.0},
        "step.attention_s": {0: 0.0, 1: 0.0},
        "step.composed_s": {0: 0.0, 1: 0.0},
        "step.pooling_s": {0: 0.0, 1: 0.0},
        "step.convolutions_s": {0: 0.0, 1: 0.0},
        "step.invariant_s": {0: 0.0, 1: 0.0},
        "step.iterations_s": {0: 0.0, 1: 0.0},
        "step.second_s": {0: 0.0, 1: 0.0},
        "step.frozen_s": {0: 0.0, 1: 0.0},
        "step.text_s": {0: 0.0, 1: 0.0},
        "step.hooks_s": {0: 0.0, 1: 0.0},
        "step.again_s": {0: 0.0, 1: 0.0},
        "step.elementary_s": {0: 0.0, 1: 0.0},
        "gc.critical_s": 0.001,
        "ddp.searched": {0: 0.0, 1: 0.0},
        "ddp.with_unused": {0: 0.0, 1: 0.0},
        "memory.watched_s": 100.0,
        "memory.pressure_share": 0.002,
        "memory.headroom_mb": 9000.0,
        "step.epoch_start_s": {0: 0.01, 1: 0.01},
        "epoch.starts": {0: 2.0, 1: 2.0},
        "step.index_s": {0: 0.0, 1: 0.0},
        "start.total_s": 5.0,
        "run.duration_s": 1000.0,
        "fetch.behind_s": {0: 0.005, 1: 0.005},
        "fetch.collecting_s": {0: 0.005, 1: 0.005},
        "fetch.slow_ratio": {0: 1.3, 1: 1.3},
        "shm.used_share": 0.2,
        "sample.transform_share": 0.3,
        "collectives.norm_calls": {0: 0.0, 1: 0.0},
        "collectives.model_s": 0.01,
        "comm.gloo_on_gpu": {0: 0.0, 1: 0.0},
        "nccl.socket": 0.0,
    }
    facts = {
        "debugging": {"looks": 4, "on": {}},
        "cuda": {"cudnn_benchmark": True},
        "optimizer": {"class": "SGD", "fused": True, "elements": 1000, "parameter_bytes": 4000},
        "model": {"class": "net.Net"},
        "watched_gradients": 12,
    }
    on_gpus = replace(
        jobs.job(own, values={**fine, **pace_jobs.sound_pace(), **SOUND_RANKS}),
        gpu_view=gpu_jobs.sound_view(),
        facts={str(number): dict(facts) for number in (0, 1)},
    )
    judgement = judged(replace(on_gpus, values={**on_gpus.values, **gpu_jobs.sound_values()}))
    assert {row.state for row in judgement.outcomes} == {"clear"}, [r for r in judgement.outcomes if r.state != "clear"]
    assert judgement.verdict.state == "healthy"


def test_a_job_on_unmonitored_gpus_is_not_called_healthy() -> None:
    own = {0: rank(0.98, input_wait=0.01, gap=0.01)}
    blind = GpuView(unmonitored=(0,), why_unmonitored="driver library and kernel module have different versions")
    verdict = judged(jobs.job(own, gpu_view=blind)).verdict
    assert (verdict.state, verdict.title) == ("inconclusive", "GPUs not observed")
    assert "rank 0" in verdict.summary and "different versions" in verdict.summary
