"""The whole way from a recording to an `Analysis`."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.analysis.batch_sizes import batch_values
from advisor.analysis.budget import Account, account
from advisor.analysis.capacities import Seen, capacities
from advisor.analysis.collecting import collecting_values
from advisor.analysis.collectives import collective_values, network_values, wire_values
from advisor.analysis.copying import copy_values
from advisor.analysis.data_mount import data_mount
from advisor.analysis.deep import deep_windows
from advisor.analysis.delivery import delivery_values
from advisor.analysis.device_memory import device_memory
from advisor.analysis.epochs import cold_values, epoch_values
from advisor.analysis.failures import failure_of, mark_followers
from advisor.analysis.feeding import worker_model
from advisor.analysis.gpu_memory import gpu_memory
from advisor.analysis.gpu_ranks import gpus_of, paths_of, unseen_ranks
from advisor.analysis.gpu_strips import gpu_strips
from advisor.analysis.gpus import error_values, gpu_values, path_values
from advisor.analysis.habits import habit_values, habits
from advisor.analysis.host import (
    Window,
    cpu_values,
    process_by_rank,
    quota_values,
    shared_memory_values,
)
from advisor.analysis.hosts import host_by_rank, node_strips, shown_strip, with_places
from advisor.analysis.labels import labelled
from advisor.analysis.loading import Loading, loader_facts, loading_of, ranks_by_pid
from advisor.analysis.memory import memory_trends, memory_values
from advisor.analysis.memory_shortage import shortage_values
from advisor.analysis.moments import deaths, hot_lines, stalls
from advisor.analysis.nccl_log import nccl_facts
from advisor.analysis.out_of_memory import out_of_memory
from advisor.analysis.own_cost import own_cost
from advisor.analysis.pacing import idle_facts, pace_values
from advisor.analysis.pulses import periodic_stalls
from advisor.analysis.references import reference_values
from advisor.analysis.roofline import roofline
from advisor.analysis.searching import search_values
from advisor.analysis.shifts import change_segments, speed_changes
from advisor.analysis.starting import start_values
from advisor.analysis.steady import RankSteps, all_steps, steady_steps, tails
from advisor.analysis.storage import storage_values
from advisor.analysis.threads import thread_values
from advisor.analysis.timeline import segments, timeline
from advisor.analysis.transforms import sample_cost
from advisor.analysis.unfed import feed
from advisor.core.analysis import JOB, Analysis, Death, Failure, HotLine, LoaderFacts, training_loader
from advisor.core.device_memory import memory_facts
from advisor.core.gpus import GpuMemoryTrend, GpuView
from advisor.core.kernels import deep_facts
from advisor.core.nccl import nccl_words
from advisor.core.recording import NODE_PIDS, Recording
from advisor.core.report import Budget, Capacity, RankStrip, StepTime, Throughput
from advisor.core.roofline import roofline_facts
from advisor.core.sample_cost import SampleCost, sample_facts
from advisor.core.stats import beyond_others
from advisor.core.step_model import StepModel
from advisor.core.storage import storage_facts
from advisor.core.worker_model import Forecast, WorkerModel, forecast
from probes.rank.layout import FLAG_CLOCKED

Values = dict[tuple[str, str], float]
_RECENT_STEPS = 20  # the step time a rank's strip shows


def analyse(recording: Recording) -> Analysis:
    """Pure: the same recording always gives the same analysis."""
    everything = all_steps(recording)
    steady = steady_steps(everything)
    accounts = account(steady, recording.gpu_steps, recording.comm, recording.collectives) if steady else None
    values: Values = {}
    missing: dict[str, str] = {}
    loaders = loader_facts(recording, ranks_by_pid(recording.processes))
    loading: dict[int, Loading | None] = {}
    model = None
    workers: WorkerModel | None = None
    stages: tuple[Capacity, ...] = ()
    mount = data_mount(recording, everything, loaders)
    devices, paths = gpus_of(recording), paths_of(recording)
    creeps: tuple[GpuMemoryTrend, ...] = ()
    ways = habits(recording)
    cost: SampleCost | None = None
    if accounts is not None:
        window = _window(recording, steady)
        _host_values(recording, window, values)
        model = _model(accounts, values, recording)
        loading = {rank: loading_of(recording, steps, training_loader(loaders, rank)) for rank, steps in steady.items()}
        _step_values(steady, accounts, values)
        _loading_values(loading, loaders, values, missing)
        values.update(epoch_values(recording, steady, loaders) | cold_values(recording, everything))
        values.update(delivery_values(recording, everything, steady, loaders, missing))
        _drop_unclocked(recording, values, missing)
        cost = sample_cost(recording, steady, loaders, values, missing)
        _comm_values(recording, steady, accounts, values, missing)
        values.update(thread_values(window) | shortage_values(window))
        values.update(collecting_values(recording, steady, accounts) | copy_values(recording, steady, missing))
        values.update(habit_values(recording, ways, missing) | batch_values(recording, steady, missing))
        values.update(pace_values(recording, steady, ways, missing))
        values.update(reference_values(recording, accounts.budget, values, missing))
        made = _throughput(accounts, steady, values.get(("step.samples", JOB))).samples_per_s
        values.update(gpu_values(window, devices, missing, made))
        held, creeps = gpu_memory(recording, steady, devices)
        values.update(held)
        values.update(storage_values(window, everything, mount, values, missing))
        workers = worker_model(recording, steady, loading, model=model, loaders=loaders, values=values)
        seen = Seen(recording, steady, loading, accounts, model, loaders, values, missing, workers)
        stages = capacities(seen, values.get(("step.samples", JOB)))
    foreseen = _foresee(workers, values, missing)
    fed_by = feed(recording, steady, accounts, loaders, missing) if accounts else None
    lines = _hot_lines(recording, values)
    _run_values(recording, everything, values)
    values.update(start_values(recording, everything))
    values.update(shared_memory_values(recording) | search_values(recording, missing))
    values.update(error_values(recording, devices))
    values.update(path_values(devices, paths))
    looked_into = deep_windows(recording, values, missing)
    reached = roofline(recording, looked_into, values)
    memory = memory_trends(recording, everything)
    values.update(memory_values(recording, everything, memory))
    time = _step_time(everything, steady)
    dead, changed = mark_followers(deaths(recording)), speed_changes(recording, steady)
    stalled = stalls(recording, time.median_s or 0.0, _p99(everything))
    nccl = nccl_facts(recording)
    values.update(network_values(recording, nccl))
    samples = values.get(("step.samples", JOB))
    return Analysis(
        meta=recording.meta,
        world_size=max(len(everything), len(process_by_rank(recording.processes))),
        step_time=time,
        throughput=_throughput(accounts, steady, samples),
        values=values,
        missing=missing,
        model=model,
        workers=workers,
        forecast=foreseen,
        budget=labelled(accounts.budget, steady, _by_rank(values, "step.epoch_start_s")) if accounts else Budget(),
        excess=_excess(accounts) if accounts else {},
        loaders=loaders,
        feed=fed_by,
        habits=ways,
        sample=cost,
        hot_lines=lines,
        save_sites=_save_sites(recording),
        deaths=dead,
        failure=(why := _failure(recording, dead)),
        out_of_memory=out_of_memory(recording, dead, why),
        stalls=stalled,
        memory=memory,
        changes=changed,
        pulse=periodic_stalls(recording, steady),
        nccl=nccl,
        storage=mount,
        capacities=stages,
        segments=(*segments(recording, everything, stalled), *change_segments(changed, _duration_s(recording))),
        timeline=timeline(recording, everything),
        facts=_facts(recording)
        | storage_facts(mount, values)
        | sample_facts(cost)
        | idle_facts(values)
        | nccl_words(nccl)
        | deep_facts(looked_into)
        | roofline_facts(reached)
        | memory_facts(device_memory(recording)),
        overhead=own_cost(recording, everything),
        ranks=_rank_strips(recording, everything, accounts),
        host=shown_strip(recording),
        gpus=with_places(gpu_strips(recording), recording),
        gpu_view=GpuView(devices, paths, creeps, *unseen_ranks(recording, devices)),
        duration_s=_duration_s(recording),
        running=recording.meta.ended_ns is None and recording.meta.recording_stopped_ns is None,
        nodes=node_strips(recording),
        host_ranks=recording.shown_node.ranks if recording.shown_node else (),
    )


def _window(recording: Recording, steady: Mapping[int, RankSteps]) -> Window:
    return Window(
        recording, min(int(s.start_ns[0]) for s in steady.values()), max(int(s.end_ns[-1]) for s in steady.values())
    )


def _model(accounts: Account, values: Values, recording: Recording) -> StepModel:
    cores = values.get(("cpu.job_cores", JOB))
    return StepModel(
        step_s=accounts.step_s,
        own=accounts.own,
        wire_s=accounts.wire_s or 0.0,
        job_cpu_s=None if cores is None else cores * accounts.step_s,
        allowed_cores=values.get(("cpu.allowed_cores", JOB)),
        hosts=max(1, len(recording.nodes)),
    )


def _failure(recording: Recording, dead: tuple[Death, ...]) -> Failure | None:
    failed = dead or recording.meta.exit_code or recording.meta.exit_signal
    return failure_of(recording, dead) if failed else None


def _host_values(recording: Recording, window: Window, values: Values) -> None:
    for name, value in cpu_values(window).items():
        values[name, JOB] = value
    for rank, process in process_by_rank(recording.processes).items():
        for name, value in quota_values(window, process).items():
            values[name, f"rank:{rank}"] = value


def _step_values(steady: Mapping[int, RankSteps], accounts: Account, values: Values) -> None:
    values["step.time_s", JOB] = accounts.step_s
    values["step.steady", JOB] = min(float(s.count.sum()) for s in steady.values())
    for rank, steps in steady.items():
        own, scope = accounts.own[rank], f"rank:{rank}"
        if steps.fed:
            values["step.epoch_start_s", scope] = min(_epoch_start_s(steps), own["input_wait"])
            values["step.input_wait_s", scope] = own["input_wait"] - values["step.epoch_start_s", scope]
            values["step.gap_s", scope] = own["gap"]
        forward = (
            own["forward"] if steps.fed else 0.0
        )  # it may be a fetch; a rank that computes slower shows it in the rest
        values["step.compute_s", scope] = forward + own["backward"] + own["optimizer"]
        values["step.evaluation_s", scope] = own["gap.evaluation"]
        values["step.checkpoint_s", scope] = own["gap.checkpoint"]
        values["step.own_s", scope] = sum(own.values())
        for name in ("gc", "run_delay"):
            values[f"step.{name}_s", scope] = steps.per_step(name)
        clocked = (steps.count == 1) & ((steps.flags & FLAG_CLOCKED) != 0)
        if clocked.any():
            values["step.system_s", scope] = float(steps.columns["compute_system"][clocked].mean())
        samples = steps.per_step("samples")
        if samples > 0:
            values["step.samples", scope] = samples
    ranks = [values[name, scope] for name, scope in values if name == "step.samples"]
    if ranks:
        values["step.samples", JOB] = sum(ranks) / len(ranks)


def _by_rank(values: Values, name: str) -> dict[int, float]:
    return {int(scope[5:]): value for (n, scope), value in values.items() if n == name and scope.startswith("rank:")}


def _hot_lines(recording: Recording, values: Values) -> tuple[HotLine, ...]:
    lines = hot_lines(recording)
    if lines:
        values["gap.io_share", JOB] = sum(line.share for line in lines if line.io)
    return lines


def _epoch_start_s(steps: RankSteps) -> float:
    """What the first fetch of an epoch takes beyond a usual one, per step; nothing where each step begins an epoch."""
    first, waits, count = steps.epoch_start, steps.columns["input_wait"], steps.count
    if first.all():
        return 0.0
    usual = waits[~first].sum() / count[~first].sum()
    return max(0.0, float((waits[first].sum() - usual * count[first].sum()) / count.sum()))


def _loading_values(
    loading: Mapping[int, Loading | None], loaders: tuple[LoaderFacts, ...], values: Values, missing: dict[str, str]
) -> None:
    for rank, made in loading.items():
        loader, scope = training_loader(loaders, rank), f"rank:{rank}"
        if loader is not None and loader.library:
            missing["loader.workers"] = missing["fetch.wall_s"] = f"{loader.library} makes the batches: out of sight"
            continue
        if loader is not None:
            values["loader.workers", scope] = float(loader.num_workers)
            if loader.mount is not None and loader.mount.get("network") is not None:
                values["data.network_mount", scope] = float(bool(loader.mount["network"]))
        elif made is not None:
            values["loader.workers", scope] = float(made.workers)
        if made is None:
            missing["fetch.wall_s"] = "no batch was seen being made: another framework's loader, or tensors in memory"
            continue
        wall = max(made.wall_s, 1e-9)
        values["fetch.wall_s", scope] = made.wall_s
        values["fetch.cpu_share", scope] = min(1.0, made.cpu_s / wall)
        values["fetch.delay_share", scope] = min(1.0, made.delay_s / wall)
        values["fetch.blocked_share", scope] = min(1.0, made.blocked_s / wall)
        values["fetch.read_mb", scope] = made.read_bytes / 1e6
        values["fetch.read_mb_per_s", scope] = made.read_bytes / 1e6 / wall
        if made.system_s is not None:
            values["fetch.system_share", scope] = min(1.0, made.system_s / wall)
        if made.busy_share is not None:
            values["loader.busy_share", scope] = made.busy_share


def _foresee(workers: WorkerModel | None, values: Values, missing: dict[str, str]) -> Forecast | None:
    foreseen = forecast(workers) if workers else None
    if foreseen is not None:
        values["loader.foreseen", JOB] = float(foreseen.most)
    else:
        unseen = "another library's workers: how many there could be is its own affair"
        missing["loader.foreseen"] = missing.get("fetch.wall_s", unseen)
    return foreseen


def _drop_unclocked(recording: Recording, values: Values, missing: dict[str, str]) -> None:
    """Where the kernel keeps no run-queue delay, the zeros in the steps are no measurement, nor is what is derived from them."""
    for rank, process in process_by_rank(recording.processes).items():
        if recording.facts.get(process.pid, {}).get("run_delay", True):
            continue
        for name in ("step.run_delay_s", "fetch.delay_share", "fetch.blocked_share"):
            values.pop((name, f"rank:{rank}"), None)
            missing[name] = (
                "the kernel keeps no run-queue delay (schedstat): waiting for a core cannot be told from waiting for data"
            )


def _comm_values(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    accounts: Account,
    values: Values,
    missing: dict[str, str],
) -> None:
    ranks = len(accounts.own)
    values.update(collective_values(recording, steady))
    if ranks < 2:
        missing["comm.wire_s"] = missing["comm.skew_s"] = "one rank: nothing to communicate"
        return
    if accounts.wire_s is None or not accounts.late_share:
        why = "no DistributedDataParallel stamps its collectives here, and none that holds a rank is called from Python"
        missing["comm.wire_s"] = missing["comm.skew_s"] = why
        return
    values["comm.wire_s", JOB] = accounts.wire_s
    values["comm.skew_s", JOB] = accounts.skew_s
    if accounts.span_s is not None:
        values["comm.span_s", JOB] = accounts.span_s
    beyond = beyond_others({rank: sum(phases.values()) for rank, phases in accounts.own.items()})
    for rank, share in accounts.late_share.items():
        values["comm.late_share", f"rank:{rank}"] = share
        values["comm.kept_waiting_s", f"rank:{rank}"] = accounts.kept_waiting_s.get(rank, 0.0)
        values["comm.excess_s", f"rank:{rank}"] = beyond[rank]
    for rank, seconds in accounts.exposed.items():
        values["comm.exposed_s", f"rank:{rank}"] = seconds
    values.update(wire_values(recording, wire_s=accounts.wire_s, span_s=accounts.span_s))


def _run_values(recording: Recording, everything: Mapping[int, RankSteps], values: Values) -> None:
    values["run.duration_s", JOB] = _duration_s(recording)
    if not everything:
        return
    after = tails(recording)
    shares = []
    for rank, steps in everything.items():
        spent = float(steps.columns["evaluation"].sum())
        end = int(steps.end_ns[-1])
        if rank in after:
            spent += float(after[rank].columns["evaluation"].sum())
            end = int(after[rank].end_ns[-1])
        shares.append(spent / max((end - int(steps.start_ns[0])) / 1e9, 1e-9))
    values["run.evaluation_share", JOB] = max(shares)


def _excess(accounts: Account) -> dict[int, dict[str, float]]:
    if len(accounts.own) < 2:
        return {}
    phases = next(iter(accounts.own.values()))
    beyond = {phase: beyond_others({rank: own[phase] for rank, own in accounts.own.items()}) for phase in phases}
    return {rank: {phase: beyond[phase][rank] for phase in phases} for rank in accounts.own}


def _step_time(everything: Mapping[int, RankSteps], steady: Mapping[int, RankSteps]) -> StepTime:
    made = max((int(s.step[-1]) + 1 for s in everything.values()), default=0)
    if not steady:
        return StepTime(None, None, made, 0)
    lengths = np.concatenate([s.length / s.count for s in steady.values()])
    return StepTime(
        float(np.median(lengths)),
        float(np.percentile(lengths, 95)),
        made,
        int(min(s.count.sum() for s in steady.values())),
    )


def _p99(everything: Mapping[int, RankSteps]) -> float:
    return max((float(np.percentile(s.length / s.count, 99)) for s in everything.values()), default=0.0)


def _throughput(accounts: Account | None, steady: Mapping[int, RankSteps], samples: float | None) -> Throughput:
    if accounts is None or accounts.step_s <= 0:
        return Throughput(None, None, samples, len(steady))
    per_second = 1.0 / accounts.step_s
    return Throughput(samples * per_second * len(steady) if samples else None, per_second, samples, len(steady))


def _save_sites(recording: Recording) -> tuple[Mapping[str, Any], ...]:
    sites = [site for facts in recording.facts.values() for site in facts.get("save_sites") or ()]
    return tuple(sorted(sites, key=lambda site: -int(site.get("count", 0))))


def _facts(recording: Recording) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        found[str(rank)] = dict(recording.facts.get(process.pid, {}))
    return found


def _rank_strips(
    recording: Recording, everything: Mapping[int, RankSteps], accounts: Account | None
) -> tuple[RankStrip, ...]:
    strips, hosts = [], host_by_rank(recording)
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        phase, step, since = recording.positions.get(rank, ("start", 0, recording.meta.last_ns))
        steps = everything.get(rank)
        alive = process.ended_ns is None and recording.meta.ended_ns is None
        strips.append(
            RankStrip(
                rank=rank,
                pid=process.pid % NODE_PIDS,
                alive=alive,
                phase=phase if alive else _ending(process.exit_code, process.exit_signal),
                phase_for_s=max(0.0, (recording.meta.last_ns - since) / 1e9) if alive else 0.0,
                step=step,
                step_s=float(np.median((steps.length / steps.count)[-_RECENT_STEPS:])) if steps else None,
                late_share=accounts.late_share.get(rank) if accounts else None,
                host=hosts.get(rank, ""),
            )
        )
    return tuple(strips)


def _ending(code: int | None, number: int | None) -> str:
    if number:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return "ended" if not code else f"exit {code}"


def _duration_s(recording: Recording) -> float:
    meta = recording.meta
    return ((meta.ended_ns or meta.last_ns) - meta.started_ns) / 1e9
