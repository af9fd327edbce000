"""The table of providers: for each measuring function, the measures it gives and the measures it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.comm.collective_calls import (
    collective_values,
    network_values,
    search_values,
)
from rn50_advisor.advisor.analysis.comm.collective_times import timed_values
from rn50_advisor.advisor.analysis.comm.exchange_values import exchange_values
from rn50_advisor.advisor.analysis.gpu.achieved_flops import roofline_values
from rn50_advisor.advisor.analysis.gpu.batch_sweeps import sweep_values
from rn50_advisor.advisor.analysis.gpu.device_copies import copy_values
from rn50_advisor.advisor.analysis.gpu.gpu_errors import error_values
from rn50_advisor.advisor.analysis.gpu.gpu_memory import unexplained_values
from rn50_advisor.advisor.analysis.gpu.gpu_use import gpu_values, idle_beside, path_values
from rn50_advisor.advisor.analysis.gpu.host_pacing import gaps_as_seen, pace_values
from rn50_advisor.advisor.analysis.gpu.launch_times import host_step_values, launching_throughout
from rn50_advisor.advisor.analysis.gpu.observed_steps import call_site_values
from rn50_advisor.advisor.analysis.gpu.published_speeds import reference_values
from rn50_advisor.advisor.analysis.host.host_memory import memory_values, shortage_values
from rn50_advisor.advisor.analysis.host.interpreter_waits import asleep_values, interpreter_values
from rn50_advisor.advisor.analysis.host.node_window import host_values, shared_memory_values
from rn50_advisor.advisor.analysis.host.thread_counts import helper_thread_values, thread_values
from rn50_advisor.advisor.analysis.input.delivery import delivery_values
from rn50_advisor.advisor.analysis.input.input_waits import input_values
from rn50_advisor.advisor.analysis.input.loading import loading_values
from rn50_advisor.advisor.analysis.input.making_samples import making_sample_values
from rn50_advisor.advisor.analysis.input.transforms import sample_values
from rn50_advisor.advisor.analysis.kernels.deep_windows import deep_values
from rn50_advisor.advisor.analysis.providers import Provider, named
from rn50_advisor.advisor.analysis.run_context import RunContext, SteadyContext
from rn50_advisor.advisor.analysis.stacks.avoidable.attention_lines import attention_values
from rn50_advisor.advisor.analysis.stacks.avoidable.awkward_transforms import transform_values
from rn50_advisor.advisor.analysis.stacks.avoidable.collection_lines import collection_values
from rn50_advisor.advisor.analysis.stacks.avoidable.composed_lines import composed_values
from rn50_advisor.advisor.analysis.stacks.avoidable.convolution_kernels import kernel_values
from rn50_advisor.advisor.analysis.stacks.avoidable.expensive_orders import order_values
from rn50_advisor.advisor.analysis.stacks.avoidable.foreign_lines import foreign_values
from rn50_advisor.advisor.analysis.stacks.avoidable.frozen_calls import frozen_values
from rn50_advisor.advisor.analysis.stacks.avoidable.hook_lines import hook_values
from rn50_advisor.advisor.analysis.stacks.avoidable.image_layers import image_layer_values
from rn50_advisor.advisor.analysis.stacks.avoidable.indexed_lines import timed_backward_values
from rn50_advisor.advisor.analysis.stacks.avoidable.joined_lines import joined_values
from rn50_advisor.advisor.analysis.stacks.avoidable.prefix_lines import prefix_values
from rn50_advisor.advisor.analysis.stacks.avoidable.python_loops import element_values, independent_values
from rn50_advisor.advisor.analysis.stacks.avoidable.recomputing import recomputing_values, second_values
from rn50_advisor.advisor.analysis.stacks.avoidable.repeated_backward import repeated_pass_values
from rn50_advisor.advisor.analysis.stacks.avoidable.repeated_lines import invariant_values, repeated_values
from rn50_advisor.advisor.analysis.stacks.avoidable.sleeping_lines import waiting_values
from rn50_advisor.advisor.analysis.stacks.avoidable.text_lines import text_values
from rn50_advisor.advisor.analysis.stacks.forward_operations import anomaly_values, operation_values
from rn50_advisor.advisor.analysis.stacks.hot_lines import outside_values
from rn50_advisor.advisor.analysis.stacks.loop_lines import own_values
from rn50_advisor.advisor.analysis.steps.batch_sizes import batch_values
from rn50_advisor.advisor.analysis.steps.denormal_shares import denormal_values
from rn50_advisor.advisor.analysis.steps.epochs import cold_values, epoch_values, evaluation_start_values
from rn50_advisor.advisor.analysis.steps.pauses import collecting_values, compilation_values
from rn50_advisor.advisor.analysis.steps.seen_training import start_values
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.steps.step_parts import run_values, step_values, throughput
from rn50_advisor.advisor.analysis.steps.trained_model import table_values
from rn50_advisor.advisor.analysis.storage.data_mount import mount_values
from rn50_advisor.advisor.analysis.storage.data_storage import storage_values
from rn50_advisor.advisor.model.forecast.worker_model import Forecast
from rn50_advisor.advisor.model.gpu.roofline import Roofline
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_HOST_STEP_S
from rn50_advisor.advisor.model.measures.input_measures import (
    BATCH_FIXED_SHARE,
    BATCH_SAMPLES,
    FETCH_WALL_S,
    LOADER_FORESEEN,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_SAMPLES
from rn50_advisor.advisor.model.recording import Recording


@dataclass(frozen=True, slots=True)
class Models:
    """Results of models that are built from measures. Further measures are derived from them."""

    forecast: Forecast | None
    roofline: Roofline | None


_PRECISION = named("precision.half", "precision.tf32")


def _batch_values(c: SteadyContext, known: Measured) -> Measured:
    """Batch-size measures from the run's own batches. Values from a benchmark of the machine replace them."""
    found = batch_values(c.run.recording, c.run.steady)
    swept = sweep_values(c.run.recording, found.by_rank(BATCH_SAMPLES), known)
    found.update(swept)
    if swept:
        found.missing.pop((BATCH_FIXED_SHARE, JOB), None)
    return found


def _pace_values(c: SteadyContext, known: Measured) -> Measured:
    found = pace_values(c.run.recording, c.run.steady, c.run.call_sites)
    found.update(launching_throughout(c.run.recording, c.run.steady, known.by_rank(GPU_HOST_STEP_S)))
    found.update(gaps_as_seen(found, known, c.run.devices))
    return found


def _gpu_values(c: SteadyContext, known: Measured) -> Measured:
    made = throughput(c.accounts, c.run.steady, known.get((STEP_SAMPLES, JOB)))
    return gpu_values(c.window, c.run.devices, made.samples_per_s)


def _foreseen_values(models: Models, known: Measured) -> Measured:
    found = Measured()
    if models.forecast is not None:
        found[LOADER_FORESEEN, JOB] = float(models.forecast.most)
    else:
        unknown = "another library's workers: their number is up to that library"
        found.missing[LOADER_FORESEEN, JOB] = known.why(FETCH_WALL_S) or unknown
    return found


def _in_own_lines(
    values: Callable[[Recording, Mapping[int, RankSteps], Measured], Measured], *measures: str
) -> Provider[SteadyContext]:
    """Time in the user's lines, of which on a GPU only the part counts in which nothing was queued."""
    needs = named("gpu.host_paced_s")
    return Provider(lambda c, known: values(c.run.recording, c.run.steady, known), named(*measures), needs)


# Providers for any run.
OF_RUNS: tuple[Provider[RunContext], ...] = (
    Provider(lambda c, _: run_values(c.recording, c.everything), named("run.*")),
    Provider(lambda c, _: start_values(c.recording, c.everything), named("start.*")),
    Provider(lambda c, _: outside_values(c.hot_lines, c.saving_share), named("gap.*")),
    Provider(lambda c, _: shared_memory_values(c.recording), named("shm.*")),
    Provider(
        lambda c, _: memory_values(c.recording, c.everything, c.memory),
        named("memory.watched_s", "memory.headroom_mb", "memory.worker_mb", "memory.copied_mb"),
    ),
    Provider(lambda c, _: search_values(c.recording), named("ddp.*")),
    Provider(lambda c, _: network_values(c.recording, c.nccl), named("nccl.*", "net.*", "comm.gloo_on_gpu")),
    Provider(lambda c, _: timed_values(c.recording), named("collectives.timed_share")),
    Provider(
        lambda c, _: error_values(c.recording, c.devices),
        named(
            "gpu.uncorrected_errors",
            "gpu.hardware_xids",
            "gpu.errors_watched",
            "gpu.row_remap_*",
            "gpu.recovery_action",
            "gpu.lost",
            "gpu.nvlinks_*",
            "gpu.nvlink_crc_per_s",
            "gpu.nvlink_recoveries",
        ),
    ),
    Provider(lambda c, _: path_values(c.devices, c.paths), named("gpu.pairs")),
    Provider(lambda c, known: deep_values(c.recording, c.windows, known), named("kernel.*"), named("step.time_s")),
)

# Providers for runs with steady steps. They measure over these steps only.
OF_STEADY_STEPS: tuple[Provider[SteadyContext], ...] = (
    Provider(
        lambda c, _: step_values(c.run.steady, c.accounts, c.source, c.unclocked),
        named(
            "step.time_s",
            "step.steady",
            "step.samples",
            "step.compute_s",
            "step.own_s",
            "step.gap_s",
            "step.longest_gap_*",
            "step.early_gap_s",
            "step.late_gap_s",
            "step.before_update_s",
            "step.evaluation_s",
            "step.checkpoint_s",
            "step.gc_s",
            "step.run_delay_s",
            "step.system_s",
        ),
    ),
    Provider(
        lambda c, _: evaluation_start_values(c.run.recording, c.run.steady, c.run.loaders),
        named("step.evaluation_start_s"),
    ),
    Provider(lambda c, _: host_values(c.window), named("cpu.*", "quota.*")),
    Provider(
        lambda c, _: shortage_values(c.window),
        named("memory.pressure_*", "memory.swap_*", "memory.host_*", "memory.limit_*"),
    ),
    Provider(lambda c, _: thread_values(c.window), named("threads.*")),
    Provider(lambda c, _: helper_thread_values(c.window, c.run.loaders), named("loader.helper_*")),
    Provider(
        lambda c, _: input_values(c.run.steady, c.accounts, c.run.loaders, drawn=c.drawn, source=c.source),
        named("step.input_wait_s", "step.index_s", "step.epoch_start_s"),
    ),
    Provider(
        lambda c, _: loading_values(c.loading, c.run.loaders, c.unclocked),
        named("loader.workers", "loader.busy_share", "fetch.wall_s", "fetch.*_share", "fetch.read_*"),
    ),
    Provider(
        lambda c, _: delivery_values(c.run.recording, c.run.everything, c.run.steady, c.run.loaders, drawn=c.drawn),
        named(
            "step.batches",
            "fetch.hand_over_*",
            "fetch.behind_s",
            "fetch.collecting_s",
            "fetch.worker_lag",
            "fetch.slow_ratio",
            "fetch.sending_s",
            "fetch.pinning_s",
        ),
    ),
    Provider(
        lambda c, _: epoch_values(c.run.recording, c.run.steady, c.run.loaders),
        named("epoch.starts", "epoch.steps", "epoch.start_*", "epoch.first_batch_s", "epoch.index_s"),
    ),
    Provider(lambda c, _: cold_values(c.run.recording, c.run.everything, c.run.loaders), named("epoch.cold_*")),
    Provider(lambda c, _: sample_values(c.cost), named("sample.*", "batch.collate_s", "batch.megabytes")),
    Provider(
        lambda c, _: making_sample_values(c.run.recording, c.run.steady),
        named(
            "loader.lock_*",
            "loader.asking_share",
            "loader.repeated_*",
            "loader.table_*",
            "loader.collection_*",
            "loader.array_*",
            "loader.chunk*",
        ),
    ),
    Provider(
        lambda c, _: collective_values(c.run.recording, c.run.steady),
        named(
            "collectives.calls",
            "collectives.megabytes",
            "collectives.held_s",
            "collectives.stream_s",
            "collectives.by_hand_s",
            "collectives.metrics_s",
            "collectives.model_s",
            "collectives.norm_*",
            "collectives.buffers_s",
        ),
    ),
    Provider(
        lambda c, _: exchange_values(c.run.recording, c.run.steady, c.accounts),
        named("comm.*") - named("comm.gloo_on_gpu"),
    ),
    Provider(lambda c, _: asleep_values(c.run.recording, c.run.steady, c.accounts), named("step.asleep_s")),
    Provider(lambda c, _: interpreter_values(c.run.recording, c.run.steady), named("interpreter.*")),
    Provider(lambda c, _: compilation_values(c.run.recording, c.run.steady), named("compile.*")),
    Provider(lambda c, _: collecting_values(c.run.recording, c.run.steady, c.accounts), named("gc.*")),
    Provider(lambda c, _: copy_values(c.run.recording, c.run.steady), named("copy.float_pictures_mb")),
    Provider(
        lambda c, _: call_site_values(c.run.recording, c.run.call_sites),
        named("sync.*", "copy.mb", "copy.pageable_*", "copy.blocking_*", "precision.*", "layout.*", "parallel.*"),
    ),
    Provider(
        _batch_values,
        named("batch.samples", "batch.usual_share", "batch.fixed_share", "batch.sizes", "batch.benchmarked"),
        _PRECISION | named("layout.channels_first", "step.batches"),
    ),
    Provider(
        _gpu_values,
        named(
            "gpu.*_thermal_share",
            "gpu.power_*",
            "gpu.throttled_share",
            "gpu.mem_used_mb",
            "gpu.*_active_share",
            "gpu.util_share",
            "gpu.clock_mhz",
            "gpu.clock_set_share",
            "gpu.peers_clock_mhz",
            "gpu.temp_c",
            "gpu.pcie_*",
            "gpu.nvlink_mb_per_s",
            "gpu.foreign_*",
            "gpu.near_cpu_share",
            "gpu.idle",
            "gpu.watts",
            "gpu.joules_per_sample",
        ),
        named("step.samples"),
    ),
    Provider(
        lambda c, known: unexplained_values(c.run.recording, c.window, c.run.devices, known),
        named("gpu.unexplained_mb"),
        named("gpu.foreign_processes"),
    ),
    Provider(
        lambda c, known: idle_beside(c.run.recording, c.run.devices, known), named("gpu.idle_beside"), named("gpu.idle")
    ),
    Provider(
        _pace_values,
        named("gpu.idle_input_s", "gpu.idle_gap_s", "gpu.host_paced_s"),
        named("gpu.util_share", "step.time_s", "gpu.host_step_s"),
    ),
    Provider(
        lambda c, _: host_step_values(c.run.recording, c.run.steady, c.run.call_sites),
        named("gpu.host_step_s"),
    ),
    Provider(
        lambda c, _: c.gpu_memory,
        named(
            "gpu.memory_watched", "gpu.alloc_retries", "gpu.fragmented_share", "gpu.reserved_share", "gpu.peak_share"
        ),
    ),
    Provider(
        lambda c, known: waiting_values(c.run.recording, c.run.steady, known),
        named("step.waiting_s"),
        named("step.asleep_s", "gpu.host_paced_s"),
    ),
    _in_own_lines(own_values, "step.preparing_s", "step.measuring_s"),
    _in_own_lines(collection_values, "step.collection_s"),
    _in_own_lines(element_values, "step.elements_s"),
    _in_own_lines(repeated_values, "step.repeated_s"),
    Provider(
        lambda c, known: timed_backward_values(c.run.recording, c.run.steady),
        named(
            "step.parts_s",
            "step.rows_s",
            "step.elementary_s",
            "step.ignored_s",
            "step.unselected_s",
            "step.repeated_rows_s",
            "step.parametrized_s",
            "step.weight_computations",
        ),
    ),
    Provider(
        lambda c, _: kernel_values(c.run.recording, c.run.steady),
        named("step.depthwise_s", "step.pixelwise_s", "step.long_kernels_s"),
    ),
    Provider(lambda c, _: order_values(c.run.recording, c.run.steady), named("step.orders_s")),
    Provider(lambda c, _: transform_values(c.run.recording, c.run.steady), named("step.transforms_s")),
    Provider(lambda c, _: repeated_pass_values(c.run.recording, c.run.steady), named("step.again_s")),
    _in_own_lines(foreign_values, "step.foreign_s"),
    _in_own_lines(hook_values, "step.hooks_s"),
    Provider(lambda c, known: attention_values(c.run.recording, c.run.steady, known), named("step.attention_s")),
    Provider(
        lambda c, known: image_layer_values(c.run.recording, c.run.steady, known),
        named("step.pooling_s", "step.convolutions_s"),
    ),
    _in_own_lines(second_values, "step.second_s"),
    _in_own_lines(prefix_values, "step.prefix_s"),
    _in_own_lines(joined_values, "step.joined_s"),
    Provider(lambda c, known: frozen_values(c.run.recording, c.run.steady, known), named("step.frozen_s")),
    _in_own_lines(text_values, "step.text_s"),
    Provider(lambda c, known: invariant_values(c.run.recording, c.run.steady, known), named("step.invariant_s")),
    Provider(lambda c, known: independent_values(c.run.recording, c.run.steady, known), named("step.iterations_s")),
    Provider(lambda c, known: composed_values(c.run.recording, c.run.steady, known), named("step.composed_s")),
    Provider(lambda c, _: recomputing_values(c.run.recording, c.run.steady), named("step.recomputing_s")),
    Provider(
        lambda c, _: operation_values(c.run.recording, c.run.steady), named("step.operations", "step.operation_s")
    ),
    Provider(
        lambda c, _: anomaly_values(c.run.recording, c.run.steady), named("step.searched_elements", "step.tracebacks_s")
    ),
    Provider(lambda c, _: denormal_values(c.run.recording, c.run.steady), named("denormal.*")),
    Provider(lambda c, _: table_values(c.run.recording, c.run.steady), named("table.*")),
    Provider(
        lambda c, known: reference_values(c.run.recording, c.accounts.budget, known),
        named("reference.*"),
        _PRECISION | named("layout.channels_first", "parallel.devices", "step.batches", "step.samples", "step.time_s"),
    ),
    Provider(
        lambda c, known: storage_values(c.window, c.run.everything, c.run.mounts, known),
        named("storage.*"),
        named("fetch.wall_s", "fetch.blocked_share", "step.batches", "step.time_s"),
    ),
    Provider(
        lambda c, known: mount_values(c.loading, c.run.loaders, c.run.mounts, known),
        named("data.network_mount"),
        named("storage.sample_kb", "fetch.wall_s"),
    ),
)

OF_MODELS: tuple[Provider[Models], ...] = (
    Provider(_foreseen_values, named("loader.foreseen"), named("fetch.wall_s")),
    Provider(lambda m, _: roofline_values(m.roofline) if m.roofline else Measured(), named("roofline.*")),
)
