"""Turns a recording into an `Analysis`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from rn50_advisor.advisor.analysis.comm.buffer_waits import accounted_steps
from rn50_advisor.advisor.analysis.comm.collective_times import timed_collectives
from rn50_advisor.advisor.analysis.failures.failure_causes import failure_of, mark_followers, with_leaver
from rn50_advisor.advisor.analysis.failures.memory_errors import out_of_memory
from rn50_advisor.advisor.analysis.failures.process_deaths import deaths, requests
from rn50_advisor.advisor.analysis.failures.stalls import slowest_steps, stalls
from rn50_advisor.advisor.analysis.gpu.achieved_flops import roofline
from rn50_advisor.advisor.analysis.gpu.batch_sweeps import batch_curves
from rn50_advisor.advisor.analysis.gpu.device_copies import copy_times
from rn50_advisor.advisor.analysis.gpu.gpu_memory import device_memory
from rn50_advisor.advisor.analysis.gpu.gpu_ranks import unmonitored_ranks
from rn50_advisor.advisor.analysis.gpu.host_pacing import idle_facts
from rn50_advisor.advisor.analysis.gpu.observed_steps import trains_on_gpu
from rn50_advisor.advisor.analysis.gpu.published_speeds import published_speed
from rn50_advisor.advisor.analysis.host.interpreter_waits import holders
from rn50_advisor.advisor.analysis.host.node_window import helpers_beside, process_by_rank
from rn50_advisor.advisor.analysis.host.thread_counts import binding_lines
from rn50_advisor.advisor.analysis.input.capacities import CapacityInputs, capacities
from rn50_advisor.advisor.analysis.input.making_samples import (
    asking_line,
    chunked_arrays,
    collecting_line,
    frequent_call,
    repeated_call,
    shared_lock,
)
from rn50_advisor.advisor.analysis.input.stream_source import stream_splits
from rn50_advisor.advisor.analysis.input.worker_forecast import worker_model
from rn50_advisor.advisor.analysis.measures import OF_MODELS, OF_RUNS, OF_STEADY_STEPS, Models
from rn50_advisor.advisor.analysis.providers import provide
from rn50_advisor.advisor.analysis.run_context import SteadyContext, run_context, steady_context
from rn50_advisor.advisor.analysis.stacks.avoidable.attention_lines import attention_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.awkward_transforms import transforming_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.collection_lines import collection_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.composed_lines import composed_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.convolution_kernels import longest_kernel
from rn50_advisor.advisor.analysis.stacks.avoidable.expensive_orders import reordered
from rn50_advisor.advisor.analysis.stacks.avoidable.foreign_lines import foreign_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.frozen_calls import frozen_calls
from rn50_advisor.advisor.analysis.stacks.avoidable.hook_lines import hook_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.indexed_lines import indexed_lines, repeating_lines, selecting_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.joined_lines import joined_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.prefix_lines import prefix_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.python_loops import (
    chained_loops,
    element_lines,
    independent_loops,
)
from rn50_advisor.advisor.analysis.stacks.avoidable.recomputing import recomputing_lines, second_computations
from rn50_advisor.advisor.analysis.stacks.avoidable.repeated_lines import invariant_lines, repeated_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.sleeping_lines import waiting_lines
from rn50_advisor.advisor.analysis.stacks.avoidable.text_lines import text_lines
from rn50_advisor.advisor.analysis.stacks.evaluation_work import evaluation_work, generating_share
from rn50_advisor.advisor.analysis.stacks.forward_operations import computing_functions, forward_lines
from rn50_advisor.advisor.analysis.stacks.layer_calls import loss_lines, packing_lines, recurrent_lines
from rn50_advisor.advisor.analysis.stacks.loop_lines import own_lines
from rn50_advisor.advisor.analysis.stacks.step_lines import drawing_lines, line_facts
from rn50_advisor.advisor.analysis.stacks.thinned_profiles import with_few_profiles
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution, labelled
from rn50_advisor.advisor.analysis.steps.hook_growth import piled_hooks
from rn50_advisor.advisor.analysis.steps.periodic_stalls import periodic_stalls
from rn50_advisor.advisor.analysis.steps.recorder_cost import own_cost
from rn50_advisor.advisor.analysis.steps.restarts import with_one_start
from rn50_advisor.advisor.analysis.steps.seen_training import coverage_of
from rn50_advisor.advisor.analysis.steps.speed_changes import change_segments, speed_changes
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, steady_steps
from rn50_advisor.advisor.analysis.steps.step_parts import duration_s, throughput
from rn50_advisor.advisor.analysis.view.gpu_strips import gpu_strips
from rn50_advisor.advisor.analysis.view.rank_strips import node_strips, rank_strips, shown_strip, with_places
from rn50_advisor.advisor.analysis.view.run_history import run_history
from rn50_advisor.advisor.analysis.view.timeline import segments, timeline
from rn50_advisor.advisor.model.analysis import Analysis, Death, Failure
from rn50_advisor.advisor.model.comm.exchanged_bytes import exchange_facts
from rn50_advisor.advisor.model.comm.nccl_settings import nccl_words
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import WorkerModel, forecast
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import memory_facts
from rn50_advisor.advisor.model.gpu.kernel_classes import deep_facts
from rn50_advisor.advisor.model.gpu.roofline import roofline_facts
from rn50_advisor.advisor.model.input.mounts import storage_facts
from rn50_advisor.advisor.model.input.sample_cost import sample_facts
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES, CPU_JOB_CORES
from rn50_advisor.advisor.model.measures.input_measures import BATCH_SAMPLES
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_EPOCH_START_S,
    STEP_SAMPLES,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Budget, Capacity, StepTime
from rn50_advisor.advisor.model.statistics import beyond_others, weighted_quantile
from rn50_advisor.probes.documents.rank_documents import EvaluationSite, RankFacts, SaveSite

_Site = TypeVar("_Site", EvaluationSite, SaveSite)


def analyse(recording: Recording) -> Analysis:
    """Analyses a recording. Pure: the same recording always gives the same analysis."""
    recording = with_few_profiles(recording)
    everything = accounted_steps(recording)
    recording = with_one_start(recording, everything)
    steady = steady_steps(everything)
    fed = {rank for rank, steps in steady.items() if steps.fed}
    run = run_context(recording, everything, steady)
    over = steady_context(run) if steady else None
    values = provide(OF_RUNS, run, provide(OF_STEADY_STEPS, over) if over else None)
    model = _step_model(over, values) if over else None
    workers = _worker_model(over, model, values) if over and model else None
    reached = roofline(recording, run.windows, values)
    foreseen = forecast(workers) if workers else None
    values = provide(OF_MODELS, Models(foreseen, reached), values)
    cost = over.cost if over and not isinstance(over.cost, str) else None
    accounts = over.accounts if over else None
    time = _step_time(everything, steady)
    dead = with_leaver(recording, mark_followers(deaths(recording)))
    changed = speed_changes(recording, steady)
    rank_facts = [*recording.facts.values()]
    stalled = stalls(recording, time.median_s or 0.0, slowest_steps(everything))
    return Analysis(
        meta=recording.meta,
        world_size=max(len(everything), len(process_by_rank(recording.processes))),
        step_time=time,
        throughput=throughput(accounts, steady, values.get((STEP_SAMPLES, JOB))),
        values=values,
        reasons=values.missing,
        model=model,
        workers=workers,
        forecast=foreseen,
        budget=labelled(accounts.budget, steady, values.by_rank(STEP_EPOCH_START_S)) if accounts else Budget(),
        excess=_excess(accounts) if accounts else {},
        loaders=run.loaders,
        stream_splits=stream_splits(recording, run.loaders),
        feed=over.source if over else None,
        coverage=coverage_of(recording, everything),
        recorder_error=next((gap.reason for gap in recording.gaps if gap.metric == "recorder"), ""),
        call_sites=run.call_sites,
        batch_curves=batch_curves(recording, values.by_rank(BATCH_SAMPLES), values),
        published=published_speed(recording, values),
        sample=cost,
        lock=shared_lock(recording, steady),
        asking=asking_line(recording, steady),
        collecting=collecting_line(recording, steady),
        repeated=repeated_call(recording, steady),
        table=frequent_call(recording, steady, "table"),
        array=frequent_call(recording, steady, "array"),
        chunked=frequent_call(recording, steady, "chunked"),
        chunked_arrays=chunked_arrays(recording),
        through=frequent_call(recording, steady, "collection"),
        holders=holders(recording, steady),
        hot_lines=run.hot_lines,
        waiting_lines=waiting_lines(recording),
        preparing_lines=own_lines(recording, "preparing", fed),
        measuring_lines=own_lines(recording, "measuring", fed),
        collection_lines=collection_lines(recording),
        element_lines=element_lines(recording),
        repeated_lines=repeated_lines(recording),
        part_lines=indexed_lines(recording, "parts"),
        row_lines=indexed_lines(recording, "rows"),
        recurrent_lines=recurrent_lines(recording),
        binding_lines=binding_lines(recording),
        packing_lines=packing_lines(recording),
        computing_functions=computing_functions(recording),
        foreign_lines=foreign_lines(recording),
        hook_lines=hook_lines(recording),
        piled_hooks=piled_hooks(recording, steady),
        attention_lines=attention_lines(recording),
        composed_lines=composed_lines(recording),
        invariant_lines=invariant_lines(recording),
        independent_loops=independent_loops(recording),
        chained_loops=chained_loops(recording),
        joined_lines=joined_lines(recording),
        reordered=reordered(recording),
        long_kernel=longest_kernel(recording),
        transforming_lines=transforming_lines(recording),
        repeating_lines=repeating_lines(recording),
        frozen_calls=frozen_calls(recording),
        second_computations=second_computations(recording),
        text_lines=text_lines(recording),
        forward_lines=forward_lines(recording),
        drawing_lines=drawing_lines(recording),
        loss_lines=loss_lines(recording),
        selecting_lines=selecting_lines(recording),
        prefix_lines=prefix_lines(recording),
        recomputing_lines=recomputing_lines(recording),
        save_sites=_most_frequent(site for facts in rank_facts for site in facts.get("save_sites", ())),
        evaluation_sites=_most_frequent(site for facts in rank_facts for site in facts.get("evaluation_sites", ())),
        evaluation_work=evaluation_work(recording),
        generating=generating_share(recording),
        evaluated_with_gradients=_evaluated_with_gradients(rank_facts),
        deaths=dead,
        asked_to_end_s=requests(recording),
        failure=(why := _failure(recording, dead)),
        out_of_memory=out_of_memory(recording, dead, why),
        stalls=stalled,
        memory=run.memory,
        helpers=helpers_beside(recording, steady),
        changes=changed,
        pulse=periodic_stalls(recording, steady),
        nccl=run.nccl,
        storage=run.mounts[0] if run.mounts else None,
        capacities=_capacities(over, model, workers, values) if over and model else (),
        segments=(*segments(recording, everything, stalled), *change_segments(changed, duration_s(recording))),
        timeline=timeline(recording, everything, steady, accounts),
        history=run_history(recording, everything, steady, accounts),
        facts=_facts(recording)
        | storage_facts(run.mounts, values)
        | exchange_facts(values, timed_collectives(recording))
        | line_facts(recording, steady)
        | sample_facts(cost)
        | idle_facts(values)
        | nccl_words(run.nccl)
        | deep_facts(run.windows)
        | roofline_facts(reached)
        | memory_facts(device_memory(recording)),
        overhead=own_cost(recording, everything),
        ranks=rank_strips(recording, everything, accounts),
        host=shown_strip(recording),
        gpus=with_places(gpu_strips(recording), recording),
        gpu_view=GpuView(
            run.devices,
            run.paths,
            over.memory_trends if over else (),
            *unmonitored_ranks(recording, run.devices, values),
        ),
        duration_s=duration_s(recording),
        running=recording.meta.ended_ns is None and recording.meta.recording_stopped_ns is None,
        nodes=node_strips(recording),
        host_ranks=recording.shown_node.ranks if recording.shown_node else (),
    )


def _failure(recording: Recording, dead: tuple[Death, ...]) -> Failure | None:
    failed = dead or recording.meta.exit_code or recording.meta.exit_signal
    return failure_of(recording, dead) if failed else None


def _step_model(over: SteadyContext, values: Measured) -> StepModel:
    accounts, cores = over.accounts, values.get((CPU_JOB_CORES, JOB))
    return StepModel(
        step_s=accounts.step_s,
        own=accounts.own,
        wire_s=accounts.wire_s or 0.0,
        job_cpu_s=None if cores is None else cores * accounts.step_s,
        allowed_cores=values.get((CPU_ALLOWED_CORES, JOB)),
        hosts=max(1, len(over.run.recording.nodes)),
        on_gpu=trains_on_gpu(over.run.recording),
    )


def _worker_model(over: SteadyContext, model: StepModel, values: Measured) -> WorkerModel | None:
    run = over.run
    return worker_model(run.recording, run.steady, over.loading, model=model, loaders=run.loaders, values=values)


def _capacities(
    over: SteadyContext, model: StepModel, workers: WorkerModel | None, values: Measured
) -> tuple[Capacity, ...]:
    run = over.run
    copies, uncopied = copy_times(run.recording, run.call_sites, run.windows, values)
    seen = CapacityInputs(
        run.recording,
        run.steady,
        over.loading,
        over.accounts,
        model,
        run.loaders,
        values,
        workers,
        copies,
        uncopied,
    )
    return capacities(seen, values.get((STEP_SAMPLES, JOB)))


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


def _most_frequent(sites: Iterable[_Site]) -> tuple[_Site, ...]:
    return tuple(sorted(sites, key=lambda site: -site.get("count", 0)))


def _evaluated_with_gradients(rank_facts: Iterable[RankFacts]) -> float | None:
    batches = np.array([facts.get("evaluation_batches", (0, 0)) for facts in rank_facts]).reshape(-1, 2).sum(axis=0)
    return float(batches[1] / batches[0]) if batches[0] else None


def _facts(recording: Recording) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        found[str(rank)] = dict(recording.facts.get(process.pid, {}))
    return found
