"""Jobs whose workers are too many, begin anew, hand over slowly, wait for each other, or find no room. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rule_cases import META, SCRIPT, dat001, job, loader, rank

from rn50_advisor.advisor.model.analysis import JOB, Analysis, Death
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SampleLine, SamplePart, SharedLock

LOCK = SharedLock("lock", SampleLine("Frames.__getitem__", SCRIPT, 61, 9, 12))


def _each(value: float) -> dict[int, float]:
    return {0: value, 1: value}


def dat005(
    delay: float = 0.3,
    in_fetch: float = 0.4,
    cpu: float = 0.5,
    *,
    workers: int = 16,
    others: float = 0.2,
    job_cores: float = 12.0,
    start: float = 0.0,
    wall: float = 4.0,
    persistent: bool = True,
    **more: Any,
) -> Analysis:
    """Training threads wait `delay` seconds for one of sixteen cores; the job's work would fill `job_cores` of them.

    An epoch of ten steps begins with `10 * start` seconds of waiting.
    """
    values: dict[str, Any] = {
        "step.run_delay_s": _each(delay),
        "fetch.delay_share": _each(in_fetch),
        "fetch.cpu_share": _each(cpu),
        "fetch.wall_s": _each(wall),
        "loader.workers": _each(workers),
        "loader.busy_share": _each(1.0),
        "step.epoch_start_s": _each(start),
        "epoch.start_s": _each(10 * start),
        "cpu.other_cores": others,
    }
    loaders = tuple(loader(n, workers, persistent=persistent) for n in (0, 1))
    own = {n: rank(input_wait=start) for n in (0, 1)}
    return job(own, **{"values": values, "job_cores": job_cores, "loaders": loaders, **more})


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
        "step.input_wait_s": _each(0.0),
        "step.epoch_start_s": _each(start),
        "epoch.starts": _each(epochs),
        "epoch.start_s": _each(steps * start),
        "epoch.steps": _each(steps),
        "epoch.first_batch_s": _each(first),
        "epoch.index_s": _each(index),
        "fetch.wall_s": _each(wall),
        "loader.workers": _each(workers),
    }
    loaders = tuple(loader(n, workers, persistent=persistent, made=made, dataset={"length": length}) for n in (0, 1))
    own = {n: rank(input_wait=start) for n in (0, 1)}
    return job(own, **{"values": values, "loaders": loaders, **more})


def dat007(
    wait: float = 0.4, wall: float = 0.05, *, delay: float = 0.2, workers: int = 2, batches: float = 1.0, **more: Any
) -> Analysis:
    """Batches are made in `wall` seconds and awaited for `wait`."""
    values: dict[str, Any] = {
        "fetch.wall_s": _each(wall),
        "fetch.delay_share": _each(delay),
        "fetch.hand_over_s": _each(0.9 * wait),
        "loader.workers": _each(workers),
        "step.batches": _each(batches),
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
    only: float | None = None,
    torch: str = "2.15.0+cpu",
    **more: Any,
) -> Analysis:
    """For `behind` seconds a later batch is ready (on rank 0 for `only`); the workers make one each wall/2 seconds."""
    values: dict[str, Any] = {
        "fetch.behind_s": {0: behind if only is None else only, 1: behind},
        "fetch.slow_ratio": _each(slow),
        "fetch.worker_lag": _each(lag),
        "fetch.wall_s": _each(wall),
        "loader.workers": _each(2),
    }
    own = {0: rank(0.6, input_wait=0.05) if only is not None else rank(input_wait=behind + 0.05)}
    own[1] = rank(input_wait=behind + 0.05)
    given = {"values": values, "loaders": (loader(0, 2), loader(1, 2)), "facts": {"0": {"torch": torch}}}
    return job(own, **{**given, **more})


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


def dat013(
    wait: float = 0.4, share: float = 0.75, error: float = 0.05, *, workers: int = 2, wall: float = 2.0, **more: Any
) -> Analysis:
    """Four workers on two ranks, each of which sleeps through nine tenths of a batch; so many looks found one before the lock."""
    values: dict[str, Any] = {
        "loader.lock_share": share,
        "loader.lock_error": error,
        "fetch.cpu_share": _each(0.1),
        "fetch.wall_s": _each(wall),
        "loader.workers": _each(workers),
        "loader.busy_share": _each(1.0),
    }
    own = {n: rank(input_wait=wait) for n in (0, 1)}
    given = {"values": values, "loaders": (loader(0, workers), loader(1, workers)), "lock": LOCK}
    return job(own, **{**given, **more})


def dat014(
    start: float = 0.2,
    epochs: float = 2.0,
    *,
    wall: float = 0.2,
    workers: int = 2,
    first: float = 0.0,
    index: float = 0.0,
    steps: float = 10.0,
    made: int = 1,
    persistent: bool = True,
    length: int | None = None,
    **more: Any,
) -> Analysis:
    """An epoch of ten steps begins with `10 * start` seconds of waiting, in old workers, or in new ones whose first takes `first`."""
    values: dict[str, Any] = {
        "step.epoch_start_s": _each(start),
        "epoch.starts": _each(epochs),
        "epoch.start_s": _each(steps * start),
        "epoch.steps": _each(steps),
        "epoch.first_batch_s": _each(first),
        "epoch.index_s": _each(index),
        "fetch.wall_s": _each(wall),
        "loader.workers": _each(workers),
    }
    loaders = tuple(loader(n, workers, persistent=persistent, made=made, dataset={"length": length}) for n in (0, 1))
    own = {n: rank(input_wait=start) for n in (0, 1)}
    return job(own, **{"values": values, "loaders": loaders, **more})


def dat015(index: float = 0.2, *, steps: float = 10.0, length: int | None = 80, **more: Any) -> Analysis:
    """Of each step `index` seconds go to drawing the indices of its batch."""
    values: dict[str, Any] = {"step.index_s": _each(index), "epoch.steps": _each(steps)}
    loaders = tuple(loader(n, 2, dataset={"length": length}) for n in (0, 1))
    own = {n: rank(input_wait=index) for n in (0, 1)}
    return job(own, **{"values": values, "loaders": loaders, **more})


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
