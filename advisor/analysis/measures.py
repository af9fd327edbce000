"""What is measured over the steady steps: values of the job and of its ranks, the model of a step, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.comm.collective_calls import collective_values, group_size, wire_values
from rn50_advisor.advisor.analysis.gpu.batch_sweeps import sweep_values
from rn50_advisor.advisor.analysis.gpu.device_copies import copy_times, copy_values
from rn50_advisor.advisor.analysis.gpu.gpu_memory import gpu_memory
from rn50_advisor.advisor.analysis.gpu.gpu_use import gpu_values, idle_beside
from rn50_advisor.advisor.analysis.gpu.host_pacing import gaps_as_seen, pace_values
from rn50_advisor.advisor.analysis.gpu.observed_steps import habit_values
from rn50_advisor.advisor.analysis.gpu.published_speeds import reference_values
from rn50_advisor.advisor.analysis.host.host_memory import shortage_values
from rn50_advisor.advisor.analysis.host.interpreter_waits import asleep_values, interpreter_values
from rn50_advisor.advisor.analysis.host.node_window import Window, cpu_values, process_by_rank, quota_values
from rn50_advisor.advisor.analysis.host.thread_counts import helper_thread_values, thread_values
from rn50_advisor.advisor.analysis.input.capacities import CapacityInputs, capacities
from rn50_advisor.advisor.analysis.input.delivery import delivery_values
from rn50_advisor.advisor.analysis.input.input_waits import index_times, input_values
from rn50_advisor.advisor.analysis.input.loading import Loading, loading_of
from rn50_advisor.advisor.analysis.input.transforms import sample_cost
from rn50_advisor.advisor.analysis.input.worker_forecast import worker_model
from rn50_advisor.advisor.analysis.input.worker_locks import lock_values
from rn50_advisor.advisor.analysis.stacks.loop_lines import own_values
from rn50_advisor.advisor.analysis.stacks.sleeping_lines import waiting_values
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution, account
from rn50_advisor.advisor.analysis.steps.batch_sizes import batch_values
from rn50_advisor.advisor.analysis.steps.epochs import cold_values, epoch_values
from rn50_advisor.advisor.analysis.steps.pauses import collecting_values, compilation_values
from rn50_advisor.advisor.analysis.steps.phases import AFTER_UPDATE, BEFORE_UPDATE, IN_MODEL
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.data_mount import network_values
from rn50_advisor.advisor.analysis.storage.data_storage import storage_values
from rn50_advisor.advisor.model.analysis import JOB, LoaderFacts, training_loader
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import WorkerModel
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuMemoryTrend
from rn50_advisor.advisor.model.gpu.gpu_pace import Habits
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.input.sample_cost import SampleCost
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Capacity, Throughput
from rn50_advisor.advisor.model.statistics import beyond_others
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED

Values = dict[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Around:
    """What is known of a run before anything is measured; at least one rank has steady steps."""

    recording: Recording
    everything: Mapping[int, RankSteps]
    steady: Mapping[int, RankSteps]
    loaders: tuple[LoaderFacts, ...]
    mounts: tuple[DataMount, ...]  # that the training data lies on, what most of it lies on first
    devices: tuple[Gpu, ...]
    ways: Habits
    windows: tuple[DeepWindow, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    accounts: StepAttribution | None = None
    model: StepModel | None = None
    workers: WorkerModel | None = None
    stages: tuple[Capacity, ...] = ()
    creeps: tuple[GpuMemoryTrend, ...] = ()
    cost: SampleCost | None = None


def measure(around: Around, values: Values, missing: dict[str, str]) -> Measured:
    """Fills in `values`, and in `missing` why some are not there. Later ones build on earlier ones."""
    recording, everything, steady, loaders = around.recording, around.everything, around.steady, around.loaders
    accounts = account(steady, recording.gpu_steps, recording.comm, recording.collectives)
    window = _window(recording, steady)
    _host_values(recording, window, values)
    model = _model(accounts, values, recording)
    drawn = index_times(recording, steady)
    loading = {
        rank: loading_of(recording, steps, training_loader(loaders, rank), drawn.get(rank, 0.0))
        for rank, steps in steady.items()
    }
    _step_values(steady, accounts, values)
    values.update(input_values(steady, accounts, loaders, drawn=drawn, missing=missing))
    _loading_values(loading, loaders, values, missing)
    values.update(epoch_values(recording, steady, loaders) | cold_values(recording, everything, loaders))
    values.update(delivery_values(recording, everything, steady, loaders, drawn=drawn, missing=missing))
    _drop_unclocked(recording, values, missing)
    cost = sample_cost(recording, steady, loaders, values, missing)
    values.update(lock_values(recording, steady, missing))
    _comm_values(recording, steady, accounts, values, missing)
    values.update(asleep_values(recording, steady, accounts, missing))
    values.update(interpreter_values(recording, steady, missing))
    values.update(thread_values(window) | helper_thread_values(window, loaders) | shortage_values(window))
    values.update(compilation_values(recording, steady))
    values.update(collecting_values(recording, steady, accounts) | copy_values(recording, steady, missing))
    values.update(habit_values(recording, around.ways, missing) | batch_values(recording, steady, missing))
    values.update(sweep_values(recording, values, missing))
    values.update(pace_values(recording, steady, around.ways, missing))
    values.update(waiting_values(recording, steady, values, missing))
    values.update(own_values(recording, steady, values))
    values.update(reference_values(recording, accounts.budget, values, missing))
    made = throughput(accounts, steady, values.get(("step.samples", JOB))).samples_per_s
    values.update(gpu_values(window, around.devices, missing, made))
    values.update(idle_beside(recording, around.devices, values))
    values.update(gaps_as_seen(values, around.devices))
    held, creeps = gpu_memory(recording, steady, around.devices)
    values.update(held)
    values.update(storage_values(window, everything, around.mounts, values, missing))
    values.update(network_values(around.mounts, values))
    workers = worker_model(recording, steady, loading, model=model, loaders=loaders, values=values)
    copies, uncopied = copy_times(recording, around.ways, around.windows, missing)
    seen = CapacityInputs(
        recording, steady, loading, accounts, model, loaders, values, missing, workers, copies, uncopied
    )
    stages = capacities(seen, values.get(("step.samples", JOB)))
    return Measured(accounts, model, workers, stages, creeps, cost)


def throughput(accounts: StepAttribution | None, steady: Mapping[int, RankSteps], samples: float | None) -> Throughput:
    if accounts is None or accounts.step_s <= 0:
        return Throughput(None, None, samples, len(steady))
    per_second = 1.0 / accounts.step_s
    return Throughput(samples * per_second * len(steady) if samples else None, per_second, samples, len(steady))


def _window(recording: Recording, steady: Mapping[int, RankSteps]) -> Window:
    return Window(
        recording, min(int(s.start_ns[0]) for s in steady.values()), max(int(s.end_ns[-1]) for s in steady.values())
    )


def _model(accounts: StepAttribution, values: Values, recording: Recording) -> StepModel:
    cores = values.get(("cpu.job_cores", JOB))
    return StepModel(
        step_s=accounts.step_s,
        own=accounts.own,
        wire_s=accounts.wire_s or 0.0,
        job_cpu_s=None if cores is None else cores * accounts.step_s,
        allowed_cores=values.get(("cpu.allowed_cores", JOB)),
        hosts=max(1, len(recording.nodes)),
    )


def _host_values(recording: Recording, window: Window, values: Values) -> None:
    for name, value in cpu_values(window).items():
        values[name, JOB] = value
    for rank, process in process_by_rank(recording.processes).items():
        for name, value in quota_values(window, process).items():
            values[name, f"rank:{rank}"] = value


def _step_values(steady: Mapping[int, RankSteps], accounts: StepAttribution, values: Values) -> None:
    values["step.time_s", JOB] = accounts.step_s
    values["step.steady", JOB] = min(float(s.count.sum()) for s in steady.values())
    for rank, steps in steady.items():
        own, scope = accounts.own[rank], f"rank:{rank}"
        if steps.fed:
            values["step.gap_s", scope] = own["gap"]
            gaps = steps.columns["gap"]
            if gaps.sum() > 0:
                longest = float(gaps[steps.count == 1].max(initial=0.0))
                values["step.longest_gap_s", scope] = longest
                values["step.longest_gap_share", scope] = longest / float(gaps.sum())
            if BEFORE_UPDATE in steps.columns:
                values["step.before_update_s", scope] = min(steps.per_step(BEFORE_UPDATE), own["gap"])
        elif AFTER_UPDATE in steps.columns:
            values["step.gap_s", scope] = own["gap"]
        # it may be a fetch but for what a profile found in the model; a rank that computes slower shows it in the rest
        told = steps.per_step(IN_MODEL) if IN_MODEL in steps.columns else 0.0
        forward = own["forward"] if steps.fed else min(own["forward"], told)
        values["step.compute_s", scope] = forward + own["backward"] + own["optimizer"]
        values["step.evaluation_s", scope] = own["gap.evaluation"]
        values["step.checkpoint_s", scope] = own["gap.checkpoint"]
        values["step.own_s", scope] = sum(own.values())
        for name in ("gc", "run_delay"):
            values[f"step.{name}_s", scope] = steps.per_step(name)
        clocked = steps.sample & ((steps.flags & FLAG_CLOCKED) != 0)
        if clocked.any():
            values["step.system_s", scope] = float(steps.columns["compute_system"][clocked].mean())
        samples = steps.per_step("samples")
        if samples > 0:
            values["step.samples", scope] = samples
    ranks = [values[name, scope] for name, scope in values if name == "step.samples"]
    if ranks:
        values["step.samples", JOB] = sum(ranks) / len(ranks)


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
    accounts: StepAttribution,
    values: Values,
    missing: dict[str, str],
) -> None:
    ranks, group = len(accounts.own), group_size(recording, accounts.own)
    partly = f"{ranks} of {group} ranks are in this recording: the wire cannot be told from waiting for the others"
    values.update(collective_values(recording, steady))
    joined = max((int(facts.get("group_size") or 0) for facts in recording.facts.values()), default=0)
    if joined:
        values["comm.joined", JOB] = float(joined)
    if max(ranks, group) > 1:
        values.update({("comm.exposed_s", f"rank:{rank}"): seconds for rank, seconds in accounts.exposed.items()})
    if ranks < 2:
        missing["comm.wire_s"] = missing["comm.skew_s"] = partly if group > 1 else "one rank: nothing to communicate"
        return
    if accounts.wire_s is None or not accounts.late_share:
        why = "no DistributedDataParallel stamps its collectives here, and none that holds a rank is called from Python"
        if accounts.exposed:
            why = "the exchanges of all ranks were not timed in the same steps: the wire cannot be told from waiting"
        missing["comm.wire_s"] = missing["comm.skew_s"] = why
        return
    values["comm.skew_s", JOB] = accounts.skew_s
    wire_s, span_s = (None, None) if group > ranks else (accounts.wire_s, accounts.span_s)
    for name, seconds in (("comm.wire_s", wire_s), ("comm.span_s", span_s)):
        if seconds is not None:
            values[name, JOB] = seconds
    if wire_s is None:
        missing["comm.wire_s"] = partly
    beyond = beyond_others({rank: sum(phases.values()) for rank, phases in accounts.own.items()})
    for rank, share in accounts.late_share.items():
        values["comm.late_share", f"rank:{rank}"] = share
        values["comm.late_run_steps", f"rank:{rank}"] = accounts.late_run.get(rank, 0.0)
        values["comm.kept_waiting_s", f"rank:{rank}"] = accounts.kept_waiting_s.get(rank, 0.0)
        values["comm.excess_s", f"rank:{rank}"] = beyond[rank]
    times = accounts.exchanges
    values.update(wire_values(recording, steady, wire_s=wire_s, span_s=span_s, exchanges=times))
