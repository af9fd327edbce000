"""The whole way from a recording to an `Analysis`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rn50_advisor.advisor.analysis.comm.buffer_waits import accounted_steps
from rn50_advisor.advisor.analysis.comm.collective_calls import network_values, search_values
from rn50_advisor.advisor.analysis.comm.collective_times import timed_collectives, timed_values
from rn50_advisor.advisor.analysis.comm.nccl_log import nccl_facts
from rn50_advisor.advisor.analysis.failures.failure_causes import failure_of, mark_followers, with_leaver
from rn50_advisor.advisor.analysis.failures.memory_errors import out_of_memory
from rn50_advisor.advisor.analysis.failures.standstills import slowest_steps, stalls
from rn50_advisor.advisor.analysis.gpu.achieved_flops import roofline
from rn50_advisor.advisor.analysis.gpu.batch_sweeps import batch_curves
from rn50_advisor.advisor.analysis.gpu.gpu_errors import error_values
from rn50_advisor.advisor.analysis.gpu.gpu_memory import device_memory
from rn50_advisor.advisor.analysis.gpu.gpu_ranks import gpus_of, paths_of, unseen_ranks
from rn50_advisor.advisor.analysis.gpu.gpu_use import path_values
from rn50_advisor.advisor.analysis.gpu.host_pacing import idle_facts
from rn50_advisor.advisor.analysis.gpu.observed_steps import habits
from rn50_advisor.advisor.analysis.host.host_memory import memory_trends, memory_values
from rn50_advisor.advisor.analysis.host.interpreter_waits import holders
from rn50_advisor.advisor.analysis.host.node_window import helpers_beside, process_by_rank, shared_memory_values
from rn50_advisor.advisor.analysis.input.loading import loader_facts, ranks_by_pid
from rn50_advisor.advisor.analysis.input.other_input import feed
from rn50_advisor.advisor.analysis.input.several_loaders import with_slowest
from rn50_advisor.advisor.analysis.input.worker_locks import asking_line, shared_lock
from rn50_advisor.advisor.analysis.kernels.deep_windows import deep_values, deep_windows
from rn50_advisor.advisor.analysis.measures import Around, Measured, Values, measure, throughput
from rn50_advisor.advisor.analysis.stacks.loop_lines import own_lines
from rn50_advisor.advisor.analysis.stacks.sleeping_lines import waiting_lines
from rn50_advisor.advisor.analysis.stacks.stack_moments import deaths, hot_lines, requests
from rn50_advisor.advisor.analysis.stacks.thinned_profiles import with_few_profiles
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution, labelled
from rn50_advisor.advisor.analysis.steps.periodic_stalls import periodic_stalls
from rn50_advisor.advisor.analysis.steps.recorder_cost import own_cost
from rn50_advisor.advisor.analysis.steps.restarts import with_one_start
from rn50_advisor.advisor.analysis.steps.seen_training import coverage_of, start_values
from rn50_advisor.advisor.analysis.steps.speed_changes import change_segments, speed_changes
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, steady_steps, tails
from rn50_advisor.advisor.analysis.storage.data_mount import data_mounts
from rn50_advisor.advisor.analysis.view.gpu_strips import gpu_strips
from rn50_advisor.advisor.analysis.view.rank_strips import node_strips, rank_strips, shown_strip, with_places
from rn50_advisor.advisor.analysis.view.timeline import segments, timeline
from rn50_advisor.advisor.model.analysis import JOB, Analysis, Death, Failure, HotLine
from rn50_advisor.advisor.model.comm.exchanged_bytes import exchange_facts
from rn50_advisor.advisor.model.comm.nccl_settings import nccl_words
from rn50_advisor.advisor.model.forecast.worker_model import Forecast, WorkerModel, forecast
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import memory_facts
from rn50_advisor.advisor.model.gpu.kernel_classes import deep_facts
from rn50_advisor.advisor.model.gpu.roofline import roofline_facts
from rn50_advisor.advisor.model.input.mounts import storage_facts
from rn50_advisor.advisor.model.input.sample_cost import sample_facts
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Budget, StepTime
from rn50_advisor.advisor.model.statistics import beyond_others, weighted_quantile


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


def _excess(accounts: StepAttribution) -> dict[int, dict[str, float]]:
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
