"""DistributedDataParallel's own timestamps of its backward passes, read every k-th step. Adds no hook and no collective."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, cast

from ..facts.process_facts import call_site
from ..layout import FLAG_COMM_SAMPLED, KIND_COMM

if TYPE_CHECKING:
    from ...documents.collective_documents import DdpFacts
    from ..ring import Ring

_KEYS = (
    "forward_compute_time",
    "backward_compute_time",
    "backward_comm_time",
    "backward_compute_comm_overlap_time",
    "backward_compute_time_start",
    "backward_compute_time_end",
    "backward_comm_time_start",
    "backward_comm_time_end",
)
# Reading costs about 8 us in a tight loop, and a stamped iteration the same: once per 50 to 100 ms of training is far below 0.1 %.
_CPU_INTERVAL_NS = 50_000_000
# DDP's own sampling rate after its first ten iterations. We change it only if all tensors are on the CPU: on a GPU a stamped iteration
# synchronises events at the next forward, which stalls the host and breaks the capture of a whole step into a CUDA graph
# (reducer_cuda.cpp, `measureDifference`). Reading the stamps copies a map under the reducer's lock, on any device.
_DDP_DEFAULT_RATE = 100
_NEVER = 1 << 30
_ALWAYS_STAMPED = 10  # iterations from the first on


class DdpStamps:
    """Reads the stamps of the rank's wrapped model with the most parameters."""

    def __init__(self) -> None:
        self.any = False  # this process has created a DistributedDataParallel
        self._model: weakref.ref[Any] | None = None
        self._options: DdpFacts = {}  # the model's entry in the facts
        self._every = 1
        self._adapted = False
        self._read = -1  # start of the last backward that was read; each is written once
        self._next_step = 0
        self._written = -1, 0  # step and iteration of the last stamps
        self._per_step = 1  # iterations: gradients may be exchanged after each micro-batch

    def register(self, model: Any) -> DdpFacts:
        """Registers a new DistributedDataParallel. Returns its options for the facts."""
        data = model._get_ddp_logging_data()
        self.any = True
        options = cast("DdpFacts", {key: data[key] for key in _OPTIONS if key in data})
        options["file"], options["line"] = call_site()
        options["device"] = _device(model)
        options["has_forward_sync"] = hasattr(model, "forward_sync_buffers")
        _describe_buffers(options, getattr(model, "named_module_buffers", {}) if data.get("broadcast_buffers") else {})
        options["bucket_bytes"] = _sizes(data.get("bucket_sizes"))
        current = self._model() if self._model is not None else None
        if current is None or _size(model) > _size(current):
            self._model, self._options = weakref.ref(model), options
            # a new wrapper's iteration count starts at zero, and so does its stamping
            self._every, self._adapted, self._read, self._next_step = 1, False, -1, 0
            self._written, self._per_step = (-1, 0), 1
        return options

    def steps_to_read(self, step: int) -> int:
        """Number of steps from `step` on until the next reading is due, at the end of the last one or in its backward."""
        return self._next_step + 2 - step if self.any else _NEVER

    def read(self, ring: Ring, step: int, pass_ns: int, on_cuda: bool) -> None:
        """Called between a forward and the next one. Writes DDP's stamps of the previous iteration, which was part of `step`.

        `pass_ns`: from one backward pass to the next. DDP counts those; ranks that wait for each other have the same.
        """
        model = self._model() if self._model is not None else None
        if model is None:
            self.any = False  # the wrapper is gone: nothing to read until the next one is created
            return
        if step < self._next_step:
            return
        self._next_step = step + self._every
        if not self._adapted and step >= _ALWAYS_STAMPED and pass_ns > 0:
            self._adapted = True
            if on_cuda or not _on_the_cpu(model):
                self._every = _DDP_DEFAULT_RATE
            else:
                self._every = _rate(pass_ns)
                model._set_ddp_runtime_logging_sample_rate(self._every)
            if self._every > 1:  # DDP stamps multiples of the rate: read each stamp once, right afterwards
                self._next_step = step + 1
            self._refresh_options(model)
        data = model.logger._get_ddp_logging_data().ints_map
        iteration = data.get("iteration", -1)
        stamps = [data.get(key, 0) for key in _KEYS]
        if stamps[2] <= 0 or stamps[4] == self._read:
            if self._adapted:
                self._next_step = step + 1  # this iteration has no stamps: read again after the next one
            return
        self._read = stamps[4]
        self._count_iterations(step, iteration)
        if self._options.get("find_unused_parameters") and "unused_parameter_size" in data:
            self._count_unused(data["unused_parameter_size"])
        forward, compute, comm, overlap, start, compute_end, comm_start, comm_end = stamps
        values = (step, iteration, forward, compute, comm, overlap, start, compute_end, comm_start, comm_end)
        ring.write(KIND_COMM, FLAG_COMM_SAMPLED, values)

    def _count_iterations(self, step: int, iteration: int) -> None:
        """DDP stamps every hundredth iteration on a GPU, however many a step has: the next reading is due when the next one was stamped."""
        before, counted = self._written
        if 0 <= before < step:
            self._per_step = max(1, (iteration - counted) // (step - before))
        self._written = step, iteration
        if self._every == _DDP_DEFAULT_RATE:
            self._next_step = step + max(1, self._every // self._per_step)

    def _refresh_options(self, model: Any) -> None:
        """Updates the facts once DDP has rebuilt its buckets in gradient order and any communication hook is registered."""
        data = model._get_ddp_logging_data()
        options = self._options
        options["bucket_bytes"] = _sizes(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes"))
        options["comm_hook"] = data.get("comm_hook") or options.get("comm_hook")

    def _count_unused(self, unused_bytes: int) -> None:
        """Counts the results of DDP's search for unused parameters in stamped iterations. The next facts include the counts."""
        options = self._options
        options["searched_iterations"] = options.get("searched_iterations", 0) + 1
        options["iterations_with_unused"] = options.get("iterations_with_unused", 0) + (unused_bytes > 0)


_OPTIONS = (
    "world_size",
    "backend_name",
    "module_name",
    "bucket_cap_bytes",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "static_graph",
    "has_sync_bn",
    "comm_hook",
    "total_parameter_size_bytes",
    "num_parameter_tensors",
    "dtypes",
)


_NORM_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def _describe_buffers(options: DdpFacts, buffers: dict[str, Any]) -> None:
    """Number and bytes of the buffers that DDP sends, by name; those of batch norm also apart."""
    sizes = {name: buffer.numel() * buffer.element_size() for name, buffer in buffers.items()}
    norms = [size for name, size in sizes.items() if name.rpartition(".")[2] in _NORM_BUFFERS]
    options["synced_buffers"], options["buffer_bytes"] = len(sizes), sum(sizes.values())
    options["norm_buffers"], options["norm_buffer_bytes"] = len(norms), sum(norms)


def _rate(pass_ns: int) -> int:
    """DDP's sampling rate: a power of two, so that ranks with slightly different step times stamp the same, comparable steps."""
    return 1 << (-(-_CPU_INTERVAL_NS // pass_ns) - 1).bit_length()


def _sizes(text: Any) -> list[int]:
    """Parses DDP's list of bucket sizes, "1048576, 26214400"."""
    return [int(part) for part in str(text or "").split(",") if part.strip().isdigit()]


def _device(model: Any) -> str | None:
    """Device type of the model's first parameter: "cuda", "cpu"."""
    device = getattr(next(iter(model.parameters()), None), "device", None)
    return getattr(device, "type", None)


def _on_the_cpu(model: Any) -> bool:
    """True if all parameters of the model are known to be on the CPU."""
    kinds = {getattr(getattr(parameter, "device", None), "type", None) for parameter in model.parameters()}
    return kinds == {"cpu"}


def _size(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
