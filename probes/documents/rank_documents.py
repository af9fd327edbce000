"""Facts that a rank writes about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from .bounded_numbers import Flag, Number, Whole
from .code_places import CodePlace
from .collective_documents import TimedCollectives
from .loader_documents import RecordedLoader
from .trial_documents import TrialFacts

_Classed = TypedDict("_Classed", {"class": str}, total=False)


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


class LayerFacts(TypedDict, total=False):
    """The first convolution or linear layer of a step. `after_autocast`: later layers were also checked for an enclosing autocast."""

    device: str
    input: str
    weight: str
    autocast: str | None
    after_autocast: bool
    input_layout: str
    weight_layout: str
    shape: list[Whole]
    weight_shape: list[Whole]
    varies: bool
    again: bool


class ModelFacts(_Classed, total=False):
    wrapped: str | None
    parameters: Whole
    bytes: dict[str, Whole]  # by device
    dtypes: list[str]
    layers: dict[str, Whole]  # count by kind
    channels_last_weights: Whole
    channels_first_weights: Whole


class ConvolutionWeights(TypedDict, total=False):
    weights: Whole
    dtypes: list[str]
    channels_last: Whole
    channels_first: Whole


class HeldMemory(_Classed, total=False):
    """Bytes that an optimizer updates and keeps on one device; `momentum` is 1 if it creates momentum buffers."""

    device: str
    elements: Whole
    parameter_bytes: Whole
    learning_bytes: Whole
    gradient_bytes: Whole
    state_bytes: Whole
    momentum: Whole
    model_bytes: Whole


class OptimizerFacts(HeldMemory, CodePlace, total=False):
    """The place is the line that made it."""

    module: str  # the module of its class
    foreach: bool | None
    fused: bool | None
    groups: Whole
    settings: Whole  # different ones among the groups
    parameters: Whole  # tensors
    sparse: bool  # a gradient is sparse
    convolutions: ConvolutionWeights


class TableFacts(_Classed, CodePlace, total=False):
    """An Embedding or EmbeddingBag with dense gradients, and the call that made it.

    `elements`: of its optimizer's parameters that have gradients. `settings`: those set in the table or its optimizer that sparse gradients
    change or do not allow. `looks`: number of observations, 0 on a GPU, where no row is read.
    """

    through: str  # a library's function between the user's line and the table
    name: str  # in the model, `embed.weight`
    rows: Whole
    width: Whole
    device: str
    optimizer: str
    module: str  # the module of the optimizer's class
    fused: bool
    elements: Whole
    settings: list[str]
    looks: Whole
    rows_seen: Whole
    rows_empty: Whole  # their gradient was zero


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


class UnusedGradients(CodePlace, total=False):
    """Parameters that get gradients in each step and are in no optimizer, among all that get gradients.

    The place: of the call, if they are all of a network's. `looks`: how many in succession found them so. `tensors` are those with two
    dimensions and more. `first`: all of them come before the first parameter that learns, in the order of the model's modules. `modules`:
    parts of the model that hold them, or the class of a network as a whole. The others are absent if no graph was read, and say of a step's
    backward passes what they do in `DiscardedGradients`.
    """

    looks: Whole
    tensors: Whole
    elements: Whole
    all_tensors: Whole
    all_elements: Whole
    first: bool
    modules: list[str]
    order: str
    products: list[Whole]
    points: list[Whole]


class DiscardedGradients(_Classed, CodePlace, total=False):
    """A line that calls `backward()`, whose gradients for some optimizers are thrown away before these step.

    `class`: of the largest of these optimizers, which was made at `made`. `callers`: the lines that called the function of this one,
    innermost first.
    `steps`: recorded steps; in these `passes` from here of which it is known what became of their gradients, those that `dropped` some, and
    those of which `whole` nothing was used. `ns`: time of the passes from here, `all_ns` of all passes. `elements`: of these optimizers'
    parameters, and `all_elements` of all. The others say what autograd's graph of such a pass showed. `order`: where these parameters lie:
    upstream, downstream, both, whole. `others`: tensors of no optimizer got gradients, too. `products`: multiplications in all, and
    those that only these gradients need; `points`: elements of other tensors.
    """

    callers: list[CodePlace]
    steps: Whole
    passes: Whole
    dropped: Whole
    whole: Whole
    ns: Whole
    all_ns: Whole
    made: CodePlace
    elements: Whole
    all_elements: Whole
    order: str
    others: bool
    products: list[Whole]
    points: list[Whole]


class FirstBatches(TypedDict):
    """Check sums of consecutive batches of a loader, from its first one on."""

    loader: Whole
    digests: list[Whole]


class _OperationCount(TypedDict):
    steps: Whole
    nodes: Whole
    low_ns: Whole


class OperationCount(_OperationCount, total=False):
    """Steps whose CPU clocks were read, and the autograd nodes created in their forward and backward passes.

    `low_ns`: CPU time of these passes for one node, in the tenth of the steps where it is shortest. `by_step`: step and nodes of some
    of them, over the whole run.
    """

    by_step: list[list[Whole]]


class _NodeMedian(TypedDict, total=False):
    median_ns: Whole  # of a node


class BackwardNodeClass(_NodeMedian):
    """Nodes of autograd of one class in the timed backward passes. `written`, `needed`: elements, of nodes that take parts of tensors: of
    all gradients that they write, and of the tensors whose parts they take.
    """

    name: str
    count: Whole
    ns: Whole
    written: Whole
    needed: Whole


class _BackwardUse(TypedDict, total=False):
    partly_ns: Whole
    unneeded_ns: Whole
    ignored_ns: Whole
    loss_rows: list[Whole]
    order: str
    names: list[str]


class BackwardNodeTimes(_BackwardUse):
    """Backward passes on a CPU that were timed node by node: their number, their time, and the classes with most of it.

    `unneeded_ns`: of nodes that lead to no parameter of an optimizer. `partly_ns`: of others that also have a weight which is in none.
    `loss_rows`: rows of cross entropies over classes, and those that they ignore; `ignored_ns`: computing these in the layers before.
    `order`: nodes of the largest pass as the forward pass made them, a letter for each of `names`, from A on.
    """

    passes: Whole
    ns: Whole
    classes: list[BackwardNodeClass]


class ReplicaFacts(CodePlace, total=False):
    """A DataParallel module."""

    devices: Whole


class DdpFacts(CodePlace, total=False):
    """A DistributedDataParallel's logged options, and the results of its searches for unused parameters."""

    world_size: Whole
    backend_name: str | None
    module_name: str | None
    bucket_cap_bytes: Whole
    find_unused_parameters: Flag
    gradient_as_bucket_view: Flag
    static_graph: Flag
    has_sync_bn: Flag
    comm_hook: str | None
    total_parameter_size_bytes: Whole
    num_parameter_tensors: Whole
    dtypes: str | None
    device: str | None
    synced_buffers: Whole  # those broadcast before forward passes, and of them batch norm's statistics
    buffer_bytes: Whole
    norm_buffers: Whole
    norm_buffer_bytes: Whole
    bucket_bytes: list[Whole]
    searched_iterations: Whole
    iterations_with_unused: Whole


class CollectiveSite(CodePlace, total=False):
    """A line that calls a collective, and sums over its calls."""

    function: str
    library: str
    kind: str
    backend: str
    group_size: Whole
    calls: Whole
    bytes: Whole
    ns: Whole
    held_ns: list[Whole]  # what blocked the rank: in forward, backward, optimizer with clipping, gap, elsewhere
    in_module: bool  # the first call came from within a module's call
    for_metrics: bool  # the library exchanges metrics, wherever it is called


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
    watched_gradients: Whole  # steps in which it was seen what becomes of the gradients
    discarded_gradients: list[DiscardedGradients]
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


LayerKind = Literal["conv", "linear"]
