"""The whole way from a recording to an `Analysis`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.analysis.budget import Account
from advisor.analysis.buffers import accounted_steps
from advisor.analysis.collective_times import timed_collectives, timed_values
from advisor.analysis.collectives import network_values
from advisor.analysis.coverage import coverage_of
from advisor.analysis.data_mount import data_mounts
from advisor.analysis.deep import deep_values, deep_windows
from advisor.analysis.device_memory import device_memory
from advisor.analysis.failures import failure_of, mark_followers, with_leaver
from advisor.analysis.few_profiles import with_few_profiles
from advisor.analysis.gpu_errors import error_values
from advisor.analysis.gpu_ranks import gpus_of, paths_of, unseen_ranks
from advisor.analysis.gpu_strips import gpu_strips
from advisor.analysis.gpus import path_values
from advisor.analysis.habits import habits
from advisor.analysis.host import (
    helpers_beside,
    process_by_rank,
    shared_memory_values,
)
from advisor.analysis.hosts import node_strips, shown_strip, with_places
from advisor.analysis.in_loop import own_lines
from advisor.analysis.interpreter import holders
from advisor.analysis.labels import labelled
from advisor.analysis.loading import loader_facts, ranks_by_pid
from advisor.analysis.locking import asking_line, shared_lock
from advisor.analysis.measures import Around, Measured, Values, measure, throughput
from advisor.analysis.memory import memory_trends, memory_values
from advisor.analysis.moments import deaths, hot_lines, requests
from advisor.analysis.nccl_log import nccl_facts
from advisor.analysis.out_of_memory import out_of_memory
from advisor.analysis.own_cost import own_cost
from advisor.analysis.pacing import idle_facts
from advisor.analysis.pulses import periodic_stalls
from advisor.analysis.rank_strips import rank_strips
from advisor.analysis.roofline import roofline
from advisor.analysis.searching import search_values
from advisor.analysis.shifts import change_segments, speed_changes
from advisor.analysis.sleeping import waiting_lines
from advisor.analysis.stalls import slowest_steps, stalls
from advisor.analysis.starting import start_values
from advisor.analysis.starts import with_one_start
from advisor.analysis.steady import RankSteps, steady_steps, tails
from advisor.analysis.sweeps import batch_curves
from advisor.analysis.timeline import segments, timeline
from advisor.analysis.unfed import feed
from advisor.analysis.zipped import with_slowest
from advisor.core.analysis import JOB, Analysis, Death, Failure, HotLine
from advisor.core.device_memory import memory_facts
from advisor.core.exchange import exchange_facts
from advisor.core.gpus import GpuView
from advisor.core.kernels import deep_facts
from advisor.core.nccl import nccl_words
from advisor.core.recording import Recording
from advisor.core.report import Budget, StepTime
from advisor.core.roofline import roofline_facts
from advisor.core.sample_cost import sample_facts
from advisor.core.stats import beyond_others, weighted_quantile
from advisor.core.storage import storage_facts
from advisor.core.worker_model import Forecast, WorkerModel, forecast


def analyse(recording: Recording) -> Analysis:
    """Pure: the same recording always gives the same analysis."""
    recording = with_few_profiles(recording)
    everything = accounted_steps(recording)
    recording = with_one_start(recording, everything)
    steady = steady_steps(everything)
    values: Values = {}
    missing: dict[str, str] = {}
    loaders = with_slowest(recording, steady, loader_facts(recording, ranks_by_pid(recording.processes)))
    mounts = data_mounts(recording, everything, loaders)
    devices, paths = gpus_of(recording), paths_of(recording)
    ways, looked_into = habits(recording), deep_windows(recording)
    around = Around(recording, everything, steady, loaders, mounts, devices, ways, looked_into)
    found = measure(around, values, missing) if steady else Measured()
    accounts = found.accounts
    foreseen = _foresee(found.workers, values, missing)
    fed_by = feed(recording, steady, accounts, loaders, missing) if accounts else None
    lines = _hot_lines(recording, [rank for rank, steps in steady.items() if not steps.fed], values)
    _run_values(recording, everything, values)
    values.update(start_values(recording, everything))
    values.update(shared_memory_values(recording) | search_values(recording, missing))
    values.update(error_values(recording, devices, missing))
    values.update(path_values(devices, paths))
    deep_values(recording, looked_into, values, missing)
    reached = roofline(recording, looked_into, values)
    memory = memory_trends(recording, everything, loaders)
    values.update(memory_values(recording, everything, memory))
    time = _step_time(everything, steady)
    dead = with_leaver(recording, mark_followers(deaths(recording)))
    changed = speed_changes(recording, steady)
    stalled = stalls(recording, time.median_s or 0.0, slowest_steps(everything))
    nccl = nccl_facts(recording)
    values.update(network_values(recording, nccl) | timed_values(recording))
    samples = values.get(("step.samples", JOB))
    return Analysis(
        meta=recording.meta,
        world_size=max(len(everything), len(process_by_rank(recording.processes))),
        step_time=time,
        throughput=throughput(accounts, steady, samples),
        values=values,
        missing=missing,
        model=found.model,
        workers=found.workers,
        forecast=foreseen,
        budget=labelled(accounts.budget, steady, _by_rank(values, "step.epoch_start_s")) if accounts else Budget(),
        excess=_excess(accounts) if accounts else {},
        loaders=loaders,
        feed=fed_by,
        coverage=coverage_of(recording, everything),
        habits=ways,
        batch_curves=batch_curves(recording, values),
        sample=found.cost,
        lock=shared_lock(recording, steady),
        asking=asking_line(recording, steady),
        holders=holders(recording, steady),
        hot_lines=lines,
        waiting_lines=waiting_lines(recording),
        preparing_lines=own_lines(recording, "preparing"),
        measuring_lines=own_lines(recording, "measuring"),
        save_sites=_save_sites(recording),
        deaths=dead,
        asked_to_end_s=requests(recording),
        failure=(why := _failure(recording, dead)),
        out_of_memory=out_of_memory(recording, dead, why),
        stalls=stalled,
        memory=memory,
        helpers=helpers_beside(recording, steady),
        changes=changed,
        pulse=periodic_stalls(recording, steady),
        nccl=nccl,
        storage=mounts[0] if mounts else None,
        capacities=found.stages,
        segments=(*segments(recording, everything, stalled), *change_segments(changed, _duration_s(recording))),
        timeline=timeline(recording, everything, steady, accounts),
        facts=_facts(recording)
        | storage_facts(mounts, values)
        | exchange_facts(values, timed_collectives(recording))
        | sample_facts(found.cost)
        | idle_facts(values)
        | nccl_words(nccl)
        | deep_facts(looked_into)
        | roofline_facts(reached)
        | memory_facts(device_memory(recording)),
        overhead=own_cost(recording, everything),
        ranks=rank_strips(recording, everything, accounts),
        host=shown_strip(recording),
        gpus=with_places(gpu_strips(recording), recording),
        gpu_view=GpuView(devices, paths, found.creeps, *unseen_ranks(recording, devices, values, missing)),
        duration_s=_duration_s(recording),
        running=recording.meta.ended_ns is None and recording.meta.recording_stopped_ns is None,
        nodes=node_strips(recording),
        host_ranks=recording.shown_node.ranks if recording.shown_node else (),
    )


def _failure(recording: Recording, dead: tuple[Death, ...]) -> Failure | None:
    failed = dead or recording.meta.exit_code or recording.meta.exit_signal
    return failure_of(recording, dead) if failed else None


def _by_rank(values: Values, name: str) -> dict[int, float]:
    return {int(scope[5:]): value for (n, scope), value in values.items() if n == name and scope.startswith("rank:")}


def _hot_lines(recording: Recording, unfed: list[int], values: Values) -> tuple[HotLine, ...]:
    lines, saving = hot_lines(recording, unfed)
    if lines or saving:
        values["gap.io_share", JOB] = sum(line.share for line in lines if line.io)
        values["gap.save_share", JOB] = saving
    return lines


def _foresee(workers: WorkerModel | None, values: Values, missing: dict[str, str]) -> Forecast | None:
    foreseen = forecast(workers) if workers else None
    if foreseen is not None:
        values["loader.foreseen", JOB] = float(foreseen.most)
    else:
        unseen = "another library's workers: how many there could be is its own affair"
        missing["loader.foreseen"] = missing.get("fetch.wall_s", unseen)
    return foreseen


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
    made = max((int((s.step + s.count).max()) for s in everything.values()), default=0)
    if not steady:
        return StepTime(None, None, made, 0)
    lengths = np.concatenate([s.length / s.count for s in steady.values()])
    counts = np.concatenate([s.count for s in steady.values()])
    return StepTime(
        weighted_quantile(lengths, counts, 0.5),
        weighted_quantile(lengths, counts, 0.95),
        made,
        int(min(s.count.sum() for s in steady.values())),
    )


def _save_sites(recording: Recording) -> tuple[Mapping[str, Any], ...]:
    sites = [site for facts in recording.facts.values() for site in facts.get("save_sites") or ()]
    return tuple(sorted(sites, key=lambda site: -int(site.get("count", 0))))


def _facts(recording: Recording) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        found[str(rank)] = dict(recording.facts.get(process.pid, {}))
    return found


def _duration_s(recording: Recording) -> float:
    meta = recording.meta
    return ((meta.ended_ns or meta.last_ns) - meta.started_ns) / 1e9
