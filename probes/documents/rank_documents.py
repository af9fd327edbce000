"""Facts that a rank writes about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

from msgspec import Meta

from .bounded_numbers import Number, Whole
from .code_places import CodePlace
from .collective_documents import CollectiveSite, DdpFacts, ReplicaFacts, TimedCollectives
from .loader_documents import RecordedLoader
from .model_documents import (
    BackwardNodeTimes,
    DiscardedGradients,
    FrozenNetwork,
    HeldMemory,
    LayerFacts,
    ModelFacts,
    OperationCount,
    OptimizerFacts,
    RepeatedPasses,
    TableFacts,
    UnusedGradients,
)
from .trial_documents import TrialFacts


class CudaFacts(TypedDict, total=False):
    """A rank's GPU, and the fast paths that are enabled."""

    device: Whole
    name: str
    capability: list[Whole]
    memory_bytes: Whole | None
    uuid: str | None
    visible: str | None  # CUDA_VISIBLE_DEVICES
    order: str | None  # CUDA_DEVICE_ORDER
    cudnn_benchmark: bool
    cudnn_deterministic: bool
    cudnn_enabled: bool
    tf32_matmul: bool
    tf32_cudnn: bool


class AutocastFacts(TypedDict, total=False):
    enabled: bool
    device: str
    dtype: str | None


class PictureFacts(TypedDict, total=False):
    dtype: str
    shape: list[Whole]
    device: str
    bytes: Whole
    from_bytes: bool | None


class BatchSizes(TypedDict):
    """Sums over training batches: bytes of their tensors, and the squares of these."""

    looks: Whole
    bytes: Whole
    squares: Number


class PaddingFacts(TypedDict):
    """Sums over batches. `cells`: cells of the masks, or of the rows of tokens; `tokens`: cells without padding; `longest`: cells if each
    batch were as wide as its longest row.
    """

    looks: Whole
    cells: Whole
    tokens: Whole
    longest: Whole


class FirstBatches(TypedDict):
    """Check sums of consecutive batches of a loader, from its first one on."""

    loader: Whole
    digests: list[Whole]


class WaitSite(CodePlace, total=False):
    """A call that waits for the GPU, in the observed steps."""

    call: str
    function: str
    through: str
    phase: str
    count: Whole
    looks: Whole
    step: Whole  # the last observed step; not written
    blocked_ns: Whole
    least_ns: Whole
    bytes: Whole


class CopySite(WaitSite, total=False):
    """A copy from host to GPU. `aside`: on a separate stream."""

    pinned: bool
    non_blocking: bool
    aside: bool
    channels_last: bool | None


class SyncFacts(TypedDict, total=False):
    """`unseen`: the reason why no step was observed."""

    looks: Whole
    device: str
    sites: Sequence[WaitSite]
    unseen: str


class SaveSite(CodePlace, total=False):
    """`stored_bytes`, `needed_bytes`: of the storages of the tensors in the first checkpoint at this line, and of the parts that they show;
    0 if unknown.
    """

    id: Whole
    count: Whole
    stored_bytes: Whole
    needed_bytes: Whole
    caller: Sequence[str]  # file and function that called torch.save, perhaps in a library


class EvaluationSite(CodePlace, total=False):
    """The line of the training loop that evaluates, and the number of evaluations."""

    count: Whole


class CompilationFacts(CodePlace, total=False):
    began_us: Number  # wall clock
    began_ns: Whole
    took_ns: Whole
    function: str
    reason: str  # reason for the recompilation


class DebuggingAids(TypedDict, total=False):
    looks: Whole
    on: dict[str, Whole]  # number of checks that found each one on


class GarbageFacts(TypedDict, total=False):
    enabled: bool
    collections: list[Whole]


class ThreadSetting(CodePlace, total=False):
    """The last call of the job that set the number of compute threads. `through`: the place in an installed package that made it; the place
    itself is then the user's line that led there, such as an import.
    """

    threads: Whole
    by_import: bool  # while a module was imported
    through: CodePlace


class AffinityLoss(CodePlace):
    """Cores that the main thread lost between two checks of its affinity.

    The place is the user's statement that imported `module`, which was under way then or had ended. `by_import`: no other statement of
    the user's can have taken the cores. `seen`: the place of the check that found them gone.
    """

    before: Whole
    after: Whole
    module: str
    by_import: bool
    seen: CodePlace


class PiledHooks(CodePlace):
    """Hooks of one function, which stands at the place, that were registered again on the same objects.

    `kind`: the method that registers them. `counts`: steps, and the number of hooks beyond the first on an object.
    """

    kind: str
    function: str
    counts: list[list[Whole]]


class ExceptionFacts(CodePlace, total=False):
    """The place is the innermost line of the user's code in the traceback."""

    function: str
    type: str
    message: str
    phase: str


class WindowFacts(TypedDict, total=False):
    """The state of a rank's deep window; times are sums over all attempts."""

    state: str  # trying, refused, done
    reason: str
    path: str
    bytes: Whole
    first_step: Whole
    steps: Whole
    start_s: Number
    stop_s: Number
    export_s: Number


class MountFacts(TypedDict, total=False):
    """The storage of a path; see `Mount` of probes/host/storage/disk_probe.py."""

    device: str
    mount_point: str
    fs_type: str
    network: bool | None
    disk: str | None
    below: Sequence[str]
    seeks: bool | None
    model: str


class RankFacts(TypedDict, total=False):
    """One file per training process. The agent adds `mounts` and `collective_times`."""

    pid: Whole
    python: str
    torch: str | None
    argv: list[str]
    cwd: str | None
    written_unix_s: Number
    environment_rank: dict[str, str | None]
    cpus_allowed: list[Whole] | None
    cpus_at_start: Whole  # their number before the user's script
    cpus_lost: AffinityLoss
    threads_set: ThreadSetting
    binding_variables: dict[str, str]  # of OpenMP
    deterministic: bool
    rank: Whole
    local_rank: Whole
    world_size: Whole
    group_size: Whole
    main_thread: Whole
    threads: Whole
    gc: GarbageFacts
    run_delay: bool
    indices_timed: bool
    visible_optimizer: bool
    fetches_in_another_thread: bool
    several_threads_train: bool
    gpu_steps_dropped: Whole
    replayed_steps: bool
    compiled_frames: Whole
    unpatched: list[str]
    input_libraries: list[str]
    cuda: CudaFacts | None
    autocast: AutocastFacts
    conv: LayerFacts
    linear: LayerFacts
    model: ModelFacts
    optimizer: OptimizerFacts
    held_at_end: HeldMemory
    pictures: PictureFacts | None
    padding: PaddingFacts
    padded_ends: PaddingFacts
    unused_gradients: UnusedGradients
    frozen_networks: list[FrozenNetwork]
    watched_gradients: Whole  # steps in which it was seen what becomes of the gradients
    discarded_gradients: list[DiscardedGradients]
    repeated_passes: RepeatedPasses
    first_batches: FirstBatches  # of a training loader
    first_evaluated: FirstBatches
    batch_sizes: BatchSizes
    operations: OperationCount
    backward_nodes: BackwardNodeTimes
    loaders: list[RecordedLoader]
    data_parallel: list[ReplicaFacts]
    ddp: list[DdpFacts]
    collectives: list[CollectiveSite]
    syncs: SyncFacts
    copies: list[CopySite]
    save_sites: list[SaveSite]
    evaluation_sites: list[EvaluationSite]
    evaluation_batches: list[Whole]  # loaders' batches for evaluation: all, and those with autograd recording
    compilations: list[CompilationFacts]
    debugging: DebuggingAids
    piled_hooks: list[PiledHooks]
    work: list[Annotated[list[Whole], Meta(min_length=4)]]  # rows of WORK_FIELDS
    denormals: list[Annotated[list[Whole], Meta(min_length=9)]]  # rows of DENORMAL_FIELDS
    tables: list[TableFacts]  # those with dense gradients; absent if none was observed
    exception: ExceptionFacts | None
    deep: WindowFacts
    trial: TrialFacts  # absent without a request
    mounts: dict[str, MountFacts]
    collective_times: TimedCollectives
