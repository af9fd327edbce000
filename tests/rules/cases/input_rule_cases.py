"""Jobs whose workers are too many, begin anew, hand over slowly, wait for each other, or find no room. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.model.analysis import JOB, Analysis, Death
from rn50_advisor.advisor.model.findings import Fix
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SampleLine, SamplePart
from rule_cases import META, SCRIPT, dat001, job, loader, on_both_ranks, rank
from rule_runs import found

IN_PROCESS: dict[str, Any] = {"wait": 0.9, "wall": 0.9, "job_cores": 1.0}
GIB = 1073.741824  # in MB
PICTURES = 38_535_168  # bytes: 64 x 3 x 224 x 224 floats


def dat006(
    start: float = 0.2,
    epochs: float = 2.0,
    *,
    first: float = 0.4,
    wall: float = 0.2,
    index: float = 0.0,
    workers: int = 2,
    persistent: bool = False,
    made: int = 1,
    steps: float = 10.0,
    length: int | None = 80,
    **more: Any,
) -> Analysis:
    """An epoch of ten steps begins with `10 * start` seconds of waiting."""
    values: dict[str, Any] = {
        "step.input_wait_s": on_both_ranks(0.0),
        "step.epoch_start_s": on_both_ranks(start),
        "epoch.starts": on_both_ranks(epochs),
        "epoch.start_s": on_both_ranks(steps * start),
        "epoch.steps": on_both_ranks(steps),
        "epoch.first_batch_s": on_both_ranks(first),
        "epoch.index_s": on_both_ranks(index),
        "fetch.wall_s": on_both_ranks(wall),
        "loader.workers": on_both_ranks(workers),
    }
    loaders = tuple(loader(n, workers, persistent=persistent, made=made, dataset={"length": length}) for n in (0, 1))
    own = {n: rank(input_wait=start) for n in (0, 1)}
    return job(own, **{"values": values, "loaders": loaders, **more})


def dat007(
    wait: float = 0.4,
    wall: float = 0.05,
    *,
    delay: float = 0.2,
    workers: int = 2,
    batches: float = 1.0,
    others: float | None = None,
    **more: Any,
) -> Analysis:
    """Batches are made in `wall` seconds and awaited for `wait`. `others`: cores that other processes keep busy."""
    values: dict[str, Any] = {
        "fetch.wall_s": on_both_ranks(wall),
        "fetch.delay_share": on_both_ranks(delay),
        "fetch.hand_over_s": on_both_ranks(0.9 * wait),
        "loader.workers": on_both_ranks(workers),
        "step.batches": on_both_ranks(batches),
        **({} if others is None else {"cpu.other_cores": others}),
    }
    own = {n: rank(input_wait=wait) for n in (0, 1)}
    loaders = (loader(0, workers), loader(1, workers))
    return job(own, **{"values": values, "loaders": loaders, **more})


def dat009(
    behind: float = 0.3,
    slow: float = 5.0,
    *,
    lag: float = 1.0,
    wall: float = 0.5,
    collecting: float = 0.0,
    only: float | None = None,
    torch: str = "2.15.0+cpu",
    **more: Any,
) -> Analysis:
    """For `behind` seconds a later batch is ready (on rank 0 for `only`); the workers make one each wall/2 seconds."""
    values: dict[str, Any] = {
        "fetch.behind_s": {0: behind if only is None else only, 1: behind},
        "fetch.slow_ratio": on_both_ranks(slow),
        "fetch.collecting_s": on_both_ranks(collecting),
        "fetch.worker_lag": on_both_ranks(lag),
        "fetch.wall_s": on_both_ranks(wall),
        "loader.workers": on_both_ranks(2),
    }
    own = {0: rank(0.6, input_wait=0.05) if only is not None else rank(input_wait=behind + 0.05)}
    own[1] = rank(input_wait=behind + 0.05)
    given = {"values": values, "loaders": (loader(0, 2), loader(1, 2)), "facts": {"0": {"torch": torch}}}
    return job(own, **{**given, **more})


def dat020(
    collecting: float = 0.3,
    share: float = 0.4,
    *,
    wall: float = 0.6,
    workers: int = 2,
    found: SampleLine | None = None,
    **more: Any,
) -> Analysis:
    """Of a step of 1 s, `collecting` is waiting for batches whose worker collects, `share` of the time of making them."""
    values: dict[str, Any] = {
        "fetch.collecting_s": on_both_ranks(collecting),
        "fetch.gc_share": on_both_ranks(share),
        "fetch.wall_s": on_both_ranks(wall),
        "loader.workers": on_both_ranks(workers),
        "step.batches": on_both_ranks(1.0),
    }
    own = {n: rank(input_wait=0.4) for n in (0, 1)}
    return job(
        own, **{"values": values, "loaders": (loader(0, workers), loader(1, workers)), "collecting": found, **more}
    )


def dat012(
    full: float = 0.95,
    *,
    workers: int = 2,
    total_mb: float = 64.0,
    batch_mb: float | None = None,
    deaths: tuple[Death, ...] = (),
    **more: Any,
) -> Analysis:
    """A /dev/shm of 64 MB was so full once; batches are so large, as far as it is known."""
    values = {"shm.used_share": full, "shm.total_mb": total_mb}
    size = None if batch_mb is None else round(1e6 * batch_mb)
    loaders = (loader(0, workers, batch_bytes=size), loader(1, workers, batch_bytes=size))
    return job({0: rank(), 1: rank()}, **{"values": values, "loaders": loaders, "deaths": deaths, "meta": META, **more})


def sample(share: float = 0.6, *, name: str = "Blur", file: str = SCRIPT, kind: str = "transform") -> SampleCost:
    """A sample of 0.38 s of CPU time, `share` of it in one transform, the rest in decoding."""
    parts = (
        SamplePart(kind, name, file, 33 if file else 0, 0.38 * share, 0.38 * share, share, 0.02),  # type: ignore[arg-type]
        SamplePart("load", "default_loader", "", 0, 0.38 * (1 - share), 0.38 * (1 - share), 1 - share, 0.02),
    )
    return SampleCost(200, 0.38, 0.38, parts, width=500.0, height=375.0)


def dat011(share: float = 0.6, *, wait: float = 0.4, name: str = "Blur", file: str = SCRIPT, **more: Any) -> Analysis:
    """Workers compute on all cores; of 0.4 CPU seconds a sample, `share` are one transform's."""
    made = dat001(wait, **{"sample": sample(share, name=name, file=file), **more})
    return replace(made, values={**made.values, ("sample.transform_share", JOB): share})


# Thresholds of `in_a_call` where batches are ready, but their workers hold the cores.
CROWDED_LINES: dict[str, Any] = {
    "crowding": ({"wait": 0.03, "crowd": 0.1}, {"wait": 0.03, "crowd": 0.0999}),
    "workers_share": (
        {"wait": 0.03, "crowd": 0.4, "job_cores": 8.99},
        {"wait": 0.03, "crowd": 0.4, "job_cores": 9.01},
    ),
}


def in_a_call(
    kind: str, wait: float, share: float, error: float, cpu: float, *, crowd: float = 0.0, **more: Any
) -> Analysis:
    """Two ranks with a worker each, which is in a call of this kind (`loader.<kind>_share`) in `share` of the samples.

    `crowd`: seconds of a step that the training threads wait for a core.
    """
    values: dict[str, Any] = {
        f"loader.{kind}_share": share,
        f"loader.{kind}_error": error,
        "fetch.cpu_share": on_both_ranks(cpu),
        "fetch.wall_s": on_both_ranks(1.0),
        "loader.workers": on_both_ranks(1),
        "loader.busy_share": on_both_ranks(1.0),
        "step.run_delay_s": on_both_ranks(crowd),
        "cpu.other_cores": 0.0,
    }
    own = {n: rank(input_wait=wait) for n in (0, 1)}
    return job(own, **{"values": values, "loaders": (loader(0, 1), loader(1, 1)), **more})


def throttled(*, wire_s: float = 0.0, every: float = 0.9, last_waits: float = 0.95) -> Analysis:
    """Reads are rationed; rank 1, which comes last, waits for them, and rank 0 for rank 1."""
    own = {0: rank(0.05, input_wait=0.01), 1: rank(last_waits + 0.04, input_wait=last_waits)}
    values = {
        **{name: {0: share, 1: share} for name, share in {"fetch.blocked_share": 0.9, "fetch.cpu_share": 0.1}.items()},
        **{name: {0: 1.0, 1: 1.0} for name in ("fetch.read_mb", "step.batches", "loader.workers")},
        "fetch.wall_s": {0: every, 1: every},
        "comm.exposed_s": {0: 0.95, 1: wire_s},
    }
    return job(own, wire_s=wire_s, values=values, late={0: 0.0, 1: 1.0}, loaders=(loader(0, 1), loader(1, 1)))


def short_of(
    analysis: Analysis, *, batch: int | None = PICTURES, prefetch: int | None = None, **values: float
) -> Analysis:
    loaders = tuple(replace(known, batch_bytes=batch, prefetch_factor=prefetch) for known in analysis.loaders)
    named = {(name.replace("__", "."), JOB): value for name, value in values.items()}
    return replace(analysis, loaders=loaders, values={**analysis.values, **named})


def fix_of(rule: str, analysis: Analysis) -> Fix:
    return found(rule, analysis).fixes[0]
