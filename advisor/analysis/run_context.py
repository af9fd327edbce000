"""The input of all measurements of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.comm.nccl_log import nccl_facts
from rn50_advisor.advisor.analysis.gpu.gpu_memory import gpu_memory
from rn50_advisor.advisor.analysis.gpu.gpu_ranks import gpus_of, paths_of
from rn50_advisor.advisor.analysis.gpu.observed_steps import usual_call_sites
from rn50_advisor.advisor.analysis.host.host_memory import memory_trends
from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.analysis.input.input_waits import index_times
from rn50_advisor.advisor.analysis.input.loading import Loading, loader_facts, loading_of, ranks_by_pid
from rn50_advisor.advisor.analysis.input.other_input import feed
from rn50_advisor.advisor.analysis.input.several_loaders import with_dispatched, with_slowest
from rn50_advisor.advisor.analysis.input.transforms import sample_cost
from rn50_advisor.advisor.analysis.kernels.deep_windows import deep_windows
from rn50_advisor.advisor.analysis.stacks.hot_lines import hot_lines
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution, account
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.data_mount import data_mounts
from rn50_advisor.advisor.model.analysis import HotLine, LoaderFacts, MemoryTrend, training_loader
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuMemoryTrend, GpuPath
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.model.input.input_source import InputSource
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.input.sample_cost import SampleCost
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording


@dataclass(frozen=True, slots=True)
class RunContext:
    """Context of any run, with or without steps."""

    recording: Recording
    everything: Mapping[int, RankSteps]
    steady: Mapping[int, RankSteps]
    loaders: tuple[LoaderFacts, ...]
    mounts: tuple[DataMount, ...]  # mounts that hold training data; the one with most of it first
    devices: tuple[Gpu, ...]
    paths: tuple[GpuPath, ...]
    call_sites: CallSites
    windows: tuple[DeepWindow, ...]
    nccl: NcclFacts | None
    memory: tuple[MemoryTrend, ...]
    hot_lines: tuple[HotLine, ...]
    saving_share: float  # share of the stack samples between steps


@dataclass(frozen=True, slots=True)
class SteadyContext:
    """Context of a run in which at least one rank has steady steps."""

    run: RunContext
    window: Window
    accounts: StepAttribution
    drawn: Mapping[int, float]  # by rank, seconds per step spent drawing indices
    loading: Mapping[int, Loading | None]
    cost: SampleCost | str  # a string says why it is unknown
    source: InputSource | None
    gpu_memory: Measured
    memory_trends: tuple[GpuMemoryTrend, ...]
    unclocked: frozenset[int]  # ranks whose kernel keeps no run-queue delay


def run_context(
    recording: Recording, everything: Mapping[int, RankSteps], steady: Mapping[int, RankSteps]
) -> RunContext:
    known = loader_facts(recording, ranks_by_pid(recording.processes))
    ranks = max((facts.get("world_size") or 1 for facts in recording.facts.values()), default=1)
    loaders = with_dispatched(steady, with_slowest(recording, steady, known), ranks=ranks)
    lines, saving_share = hot_lines(recording, [rank for rank, steps in steady.items() if not steps.fed])
    return RunContext(
        recording=recording,
        everything=everything,
        steady=steady,
        loaders=loaders,
        mounts=data_mounts(recording, everything, loaders),
        devices=gpus_of(recording),
        paths=paths_of(recording),
        call_sites=usual_call_sites(recording),
        windows=deep_windows(recording),
        nccl=nccl_facts(recording),
        memory=memory_trends(recording, everything, loaders),
        hot_lines=lines,
        saving_share=saving_share,
    )


def steady_context(run: RunContext) -> SteadyContext:
    recording, steady, loaders = run.recording, run.steady, run.loaders
    first_ns, last_ns = (
        min(int(s.start_ns[0]) for s in steady.values()),
        max(int(s.end_ns[-1]) for s in steady.values()),
    )
    accounts = account(steady, recording.gpu_steps, recording.comm, recording.collectives)
    drawn = index_times(recording, steady)
    held, memory_trends = gpu_memory(recording, steady, run.devices)
    return SteadyContext(
        run=run,
        window=Window(recording, first_ns, last_ns),
        accounts=accounts,
        drawn=drawn,
        loading={
            rank: loading_of(recording, steps, training_loader(loaders, rank), drawn.get(rank, 0.0))
            for rank, steps in steady.items()
        },
        cost=sample_cost(recording, steady, loaders),
        source=feed(recording, steady, accounts, loaders),
        gpu_memory=held,
        memory_trends=memory_trends,
        unclocked=frozenset(
            rank
            for rank, process in process_by_rank(recording.processes).items()
            if not recording.facts.get(process.pid, {}).get("run_delay", True)
        ),
    )
