"""Measures of the step and the run: parts of a step, pauses, epochs, the start."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures.measure import JobAndRankMeasure, JobMeasure, RankMeasure

STEP_TIME_S = JobMeasure("step.time_s", "s", "mean time of a steady step")
STEP_STEADY = JobMeasure("step.steady", "steps", "steady steps that all ranks have in common")
STEP_INPUT_WAIT_S = RankMeasure(
    "step.input_wait_s",
    "s",
    "waiting for input in a typical step, without the first fetch of each epoch and the drawing of indices",
)
STEP_INDEX_S = RankMeasure("step.index_s", "s", "drawing the indices of a step's batches, in the training thread")
STEP_EPOCH_START_S = RankMeasure(
    "step.epoch_start_s", "s", "first fetch of each epoch and start of its workers, per step"
)
STEP_COMPUTE_S = RankMeasure(
    "step.compute_s", "s", "forward (where it is known), backward without communication, optimizer"
)
STEP_GAP_S = RankMeasure(
    "step.gap_s",
    "s",
    "unlabelled time between the optimizer and the next fetch, and user code before the optimizer",
)
STEP_LONGEST_GAP_S = RankMeasure("step.longest_gap_s", "s", "the longest such time in a single step")
STEP_LONGEST_GAP_SHARE = RankMeasure("step.longest_gap_share", "", "share of all such time in that step")
STEP_EARLY_GAP_S = RankMeasure(
    "step.early_gap_s", "s", "its median in the first quarter of the steps, where it grows from quarter to quarter"
)
STEP_LATE_GAP_S = RankMeasure("step.late_gap_s", "s", "its median in the last quarter, where it grows")
STEP_BEFORE_UPDATE_S = RankMeasure(
    "step.before_update_s", "s", "the part between backward and optimizer that is neither clipping nor an exchange"
)
STEP_EVALUATION_S = RankMeasure("step.evaluation_s", "s", "evaluation, spread over the steps")
STEP_EVALUATION_START_S = RankMeasure(
    "step.evaluation_start_s", "s", "starting the workers of evaluations, spread over the steps"
)
STEP_CHECKPOINT_S = RankMeasure("step.checkpoint_s", "s", "checkpoints with their fsync, spread over the steps")
STEP_GC_S = RankMeasure("step.gc_s", "s", "garbage collections")
STEP_SYSTEM_S = RankMeasure("step.system_s", "s", "forward and backward inside the kernel: page faults, mostly")
STEP_RUN_DELAY_S = RankMeasure("step.run_delay_s", "s", "training thread runnable without a core")
STEP_OWN_S = RankMeasure("step.own_s", "s", "everything except waiting for other ranks")
STEP_BATCHES = RankMeasure("step.batches", "batches", "micro-batches of one rank in a step")
STEP_SAMPLES = JobAndRankMeasure("step.samples", "samples", "samples of one rank in a step")
STEP_ASLEEP_S = RankMeasure(
    "step.asleep_s",
    "s",
    "part of forward, backward and optimizer: neither computing nor waiting for a core or another rank",
)
STEP_PREPARING_S = RankMeasure(
    "step.preparing_s",
    "s",
    "part of the forward pass: computing in lines of the user's own code between the batch and the model",
)
STEP_MEASURING_S = RankMeasure(
    "step.measuring_s",
    "s",
    "part of the forward pass: computing in libraries called by the user's own lines between model and backward pass",
)
STEP_COLLECTION_S = RankMeasure(
    "step.collection_s",
    "s",
    "computing in lines of the user's own code that go through a whole collection, though the step needs little of it",
)
STEP_ELEMENTS_S = RankMeasure(
    "step.elements_s",
    "s",
    "computing in Python loops of the user's own code that handle tensors element by element",
)
STEP_REPEATED_S = RankMeasure(
    "step.repeated_s",
    "s",
    "computing in lines of the user's own code that give the same in every step",
)
STEP_PREFIX_S = RankMeasure(
    "step.prefix_s",
    "s",
    "calls of a model in loops that hand it the whole sequence so far, and make it longer, in each iteration",
)
STEP_JOINED_S = RankMeasure(
    "step.joined_s", "s", "lines in loops that copy all results so far into a new tensor or array in each iteration"
)
STEP_SECOND_S = RankMeasure(
    "step.second_s", "s", "outside the backward pass: lines that compute what an earlier line of the step has computed"
)
STEP_FROZEN_S = RankMeasure(
    "step.frozen_s", "s", "on a CPU: calls of networks that do not learn and get the same inputs in every epoch"
)
STEP_TEXT_S = RankMeasure("step.text_s", "s", "formatting tensors as text, wherever in the step")
STEP_INVARIANT_S = RankMeasure(
    "step.invariant_s",
    "s",
    "part of the forward pass on a CPU: computing what is the same in each iteration of a loop",
)
STEP_ITERATIONS_S = RankMeasure(
    "step.iterations_s",
    "s",
    "outside the backward pass, on a CPU: loops of the user's own code whose iterations do not depend on each other",
)
STEP_PARTS_S = RankMeasure(
    "step.parts_s",
    "s",
    "part of the backward pass on a CPU: writing whole gradients for parts of tensors that are taken or set one by one",
)
STEP_ROWS_S = RankMeasure(
    "step.rows_s", "s", "part of the backward pass on a CPU: adding up gradients of rows taken by a tensor of indices"
)
STEP_IGNORED_S = RankMeasure(
    "step.ignored_s",
    "s",
    "part of the backward pass on a CPU: the layers before a cross entropy, for positions whose targets it ignores",
)
STEP_PARAMETRIZED_S = RankMeasure(
    "step.parametrized_s",
    "s",
    "part of the backward pass on a CPU: computing the weights of parametrized layers (orthogonal, weight normalisation)",
)
STEP_WEIGHT_COMPUTATIONS = RankMeasure(
    "step.weight_computations",
    "",
    "times that a pass computes each parametrized weight (orthogonal, weight normalisation)",
)
STEP_UNSELECTED_S = RankMeasure(
    "step.unselected_s",
    "s",
    "part of the backward pass on a CPU: layers that compute each row by itself, for rows that a later selection leaves out",
)
STEP_REPEATED_ROWS_S = RankMeasure(
    "step.repeated_rows_s",
    "s",
    "part of the backward pass on a CPU: linear layers on rows that are there several times, and joining these rows",
)
STEP_DEPTHWISE_S = RankMeasure(
    "step.depthwise_s",
    "s",
    "part of the backward pass on a CPU: convolutions of each channel of images by itself with kernels of 5×5 and more",
)
STEP_PIXELWISE_S = RankMeasure(
    "step.pixelwise_s",
    "s",
    "part of the backward pass on a CPU: convolutions of single pixels of images, over all channels",
)
STEP_LONG_KERNELS_S = RankMeasure(
    "step.long_kernels_s",
    "s",
    "part of the backward pass on a CPU: convolutions of each channel of sequences by itself with kernels of 64 and more",
)
STEP_ORDERS_S = RankMeasure(
    "step.orders_s",
    "s",
    "part of the backward pass on a CPU: what another order of linear operations would spare",
)
STEP_TRANSFORMS_S = RankMeasure(
    "step.transforms_s",
    "s",
    "part of the backward pass on a CPU: Fourier transforms of lengths with a large prime factor",
)
STEP_AGAIN_S = RankMeasure(
    "step.again_s",
    "s",
    "part of the backward passes: nodes of autograd's graph that an earlier pass for the same gradients had gone through",
)
STEP_HOOKS_S = RankMeasure(
    "step.hooks_s",
    "s",
    "part of forward and backward: computing in the user's own hooks of modules and gradients that only watch",
)
STEP_ELEMENTARY_S = RankMeasure(
    "step.elementary_s",
    "s",
    "part of the backward pass on a CPU: operations that compute one element from another, or sums and means of them",
)
STEP_COMPOSED_S = RankMeasure(
    "step.composed_s",
    "s",
    "part of the step on a CPU, without its backward pass: operations composed of elementary ones, or slow forms of them",
)
STEP_FOREIGN_S = RankMeasure(
    "step.foreign_s",
    "s",
    "part of forward and backward: computing in libraries other than torch, called by the user's own lines in the model, a loss or a hook",
)
STEP_ATTENTION_S = RankMeasure(
    "step.attention_s",
    "s",
    "part of the forward pass on a CPU: attention computed in parts (scores, softmax, weighted sum) by the user's own lines",
)
STEP_POOLING_S = RankMeasure(
    "step.pooling_s", "s", "part of the forward pass on a CPU: pooling and resizing of images, without global pooling"
)
STEP_CONVOLUTIONS_S = RankMeasure("step.convolutions_s", "s", "part of forward and backward on a CPU: convolutions")
STEP_RECOMPUTING_S = RankMeasure(
    "step.recomputing_s",
    "s",
    "part of the backward pass: forward passes of checkpointed layers that it computes again",
)
STEP_OPERATIONS = RankMeasure(
    "step.operations", "operations", "nodes of autograd's graph: differentiable operations of the forward pass"
)
STEP_SEARCHED_ELEMENTS = RankMeasure(
    "step.searched_elements",
    "elements",
    "of gradients on a CPU that anomaly detection searches for NaN in the backward pass",
)
STEP_TRACEBACKS_S = RankMeasure(
    "step.tracebacks_s", "s", "part of the forward pass on a CPU: formatting a traceback for each operation"
)
STEP_OPERATION_S = RankMeasure(
    "step.operation_s",
    "s",
    "CPU time of forward and backward pass for each of these, in the tenth of the steps where it is shortest",
)
STEP_WAITING_S = RankMeasure(
    "step.waiting_s", "s", "part of these phases: asleep in lines of the user's own code, which wait for something"
)

DENORMAL_WEIGHTS = RankMeasure("denormal.weights", "", "share of denormal numbers in weights on the CPU, at last")
DENORMAL_GRADIENTS = RankMeasure("denormal.gradients", "", "the same in their gradients")
DENORMAL_STATE = RankMeasure("denormal.state", "", "the same in the optimizer's state")
DENORMAL_FLUSHED = RankMeasure(
    "denormal.flushed", "", "share of these looks that found the training thread flushing denormal numbers to zero"
)
DENORMAL_SINCE = RankMeasure("denormal.since", "", "step of the first look that found any, if earlier looks found none")
DENORMAL_BEFORE_S = RankMeasure(
    "denormal.before_s",
    "s",
    "what a usual step before that needs for what meets them: the optimizer; with denormal weights or gradients also forward and backward",
)
DENORMAL_EXPECTED_S = RankMeasure(
    "denormal.expected_s", "s", "the same if the machine were as fast as in steps with as many as there are at last"
)
DENORMAL_AFTER_S = RankMeasure("denormal.after_s", "s", "what it needs in these steps")
DENORMAL_STEP_S = RankMeasure("denormal.step_s", "s", "the whole of such a step")

TABLE_EMPTY_ROWS = RankMeasure(
    "table.empty_rows",
    "",
    "share of the rows of large embedding tables on the CPU whose dense gradient is zero, in some early steps",
)

COMPILE_LATE = RankMeasure("compile.late", "", "compilations by torch.compile after the 50th step")
COMPILE_LATE_S = RankMeasure("compile.late_s", "s", "time that these took, spread over the steps after the 50th")

GC_CRITICAL_S = JobMeasure(
    "gc.critical_s", "s", "how much shorter the mean step would be without any rank's garbage collections"
)
GC_BETWEEN_S = RankMeasure(
    "gc.between_s", "s", "garbage collections between the optimizer and the next fetch, those of 5 ms and more"
)
GC_REPEATED_PAUSE_S = RankMeasure(
    "gc.repeated_pause_s", "s", "garbage collections in one step: as long in three steps at least"
)
GC_LONG_SHARE = RankMeasure(
    "gc.long_share", "", "share of the time of garbage collections in those of 5 ms and more, which visit all objects"
)

GAP_IO_SHARE = JobMeasure(
    "gap.io_share", "", "share of the stack samples between steps in file writes, prints or loggers"
)
GAP_SAVE_SHARE = JobMeasure(
    "gap.save_share", "", "share of them in a function that saves, outside torch's own part of it"
)

RUN_EVALUATION_SHARE = JobMeasure("run.evaluation_share", "", "evaluation's share of the run since the first step")
RUN_DURATION_S = JobMeasure("run.duration_s", "s", "since the job's start")

START_TOTAL_S = JobMeasure(
    "start.total_s", "s", "from the job's start until every rank had finished its first step, less a usual step"
)
START_BEFORE_S = JobMeasure(
    "start.before_s", "s", "from the job's start until the first fetch of its slowest rank to start"
)
START_FETCH_S = JobMeasure("start.fetch_s", "s", "that rank's first fetch beyond a usual one")
START_SKIPPED_S = JobMeasure(
    "start.skipped_s", "s", "fetching batches that it threw away before the first that trained"
)
START_FIRST_STEP_S = JobMeasure("start.first_step_s", "s", "the rest of its first step beyond a usual one")

EPOCH_STARTS = RankMeasure("epoch.starts", "epochs", "epochs that began within the steady steps")
EPOCH_STEPS = RankMeasure("epoch.steps", "steps", "from the start of an epoch to that of the next")
EPOCH_START_S = RankMeasure(
    "epoch.start_s", "s", "extra time of an epoch's start over a usual fetch: ending and starting workers, first batch"
)
EPOCH_START_COMPUTE_S = RankMeasure(
    "epoch.start_compute_s", "s", "extra compute time of an epoch's first step, while its workers are still starting"
)
EPOCH_FIRST_BATCH_S = RankMeasure("epoch.first_batch_s", "s", "a new worker's first batch")
EPOCH_COLD_STEPS = JobMeasure(
    "epoch.cold_steps", "steps", "the steps of the first epoch in which fetches waited much longer than later ones"
)
EPOCH_COLD_WAIT_S = JobMeasure("epoch.cold_wait_s", "s", "waiting for input in a step of that epoch")
EPOCH_COLD_LATER_WAIT_S = JobMeasure("epoch.cold_later_wait_s", "s", "the same in later epochs")
EPOCH_COLD_STEP_S = JobMeasure("epoch.cold_step_s", "s", "step time in that epoch")
EPOCH_COLD_READ_MB = JobMeasure("epoch.cold_read_mb", "MB", "read from a device per batch in that epoch")
EPOCH_COLD_LATER_READ_MB = JobMeasure("epoch.cold_later_read_mb", "MB", "the same in later epochs")
EPOCH_INDEX_S = RankMeasure(
    "epoch.index_s", "s", "making the iterator after its workers had started: the order of the samples"
)

INTERPRETER_LOOKS = RankMeasure(
    "interpreter.looks",
    "looks",
    "checks of the training thread in its steps: does it wait for Python's interpreter lock",
)
INTERPRETER_WAITING_SHARE = RankMeasure(
    "interpreter.waiting_share",
    "",
    "share of these checks that found it waiting while another thread held the lock",
)
INTERPRETER_ERROR = RankMeasure("interpreter.error", "", "standard error of that share")
INTERPRETER_LOST_S = RankMeasure(
    "interpreter.lost_s", "s", "time per step, by that share, in which the training thread waits for the lock"
)
