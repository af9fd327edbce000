"""The byte layout of a ring file, which a rank or worker writes and the agent reads. Standard library only.

A ring is one page of header followed by `slots` slots of `SLOT_BYTES`. One writer, any number of readers, no lock: slot `n % slots` holds
record number `n`. The sequence number is at both ends of the slot, so a reader detects a torn or overwritten slot.
All times are nanoseconds of CLOCK_MONOTONIC (`time.perf_counter_ns`), which all processes of one Linux host share.
"""

import struct

MAGIC = b"RN50RING"
VERSION = 2
HEADER_BYTES = 4096
SLOT_BYTES = 256
RANK_SLOTS = 1024  # a quarter of a MiB; one second of 1 ms steps, four polls of the agent
WORKER_SLOTS = 128
# Maximum share of free shared memory for a ring, which gets fewer slots if needed: loader workers pass batches through the same memory,
# and a container may have only 64 MiB of it (Docker's default) or 8. The smallest ring, like any small file, may use a share of 1/16.
RING_SHARE = 1 / 128
SLOTS_LEAST = 128

# Header, fixed part: written once, when the ring is created.
# magic, version, slot bytes, slots, pid, role, rank, local rank, world size, worker id, parent pid, wall-clock and monotonic ns
FIXED = struct.Struct("<8sIIIiiiiiiiqq")
# Header, live part: the current state of the process.
LIVE_OFFSET = 128
# head (records written so far), since_ns << PHASE_BITS | phase, step, self_ns (the recorder's own cost), errors, ended (0 running,
# 1 left by its own exit). A phase and its start share a word: the process may be preempted or stopped between two stores.
LIVE = struct.Struct("<QqqqqQ")
PHASE_BITS = 4
PHASE_MASK = (1 << PHASE_BITS) - 1

# Header, of a rank: its latest collective called from Python. Calls begun on its group (including this one), kind, group, number of ranks
# in the group, and the time when the rank entered it (0: it has left).
COLLECTIVE_OFFSET = 256
COLLECTIVE = struct.Struct("<qqqqq")
COLLECTIVE_KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce", "gather", "scatter", "barrier",
)  # fmt: skip

LAYER_KINDS_MAX = 16  # the most frequent kinds of a model's layers in a rank's facts
COMPILATIONS_MAX = 64  # dynamo's latest compilations in a rank's facts
# The recorder stops after swallowing this many errors, since it does not fit this job. Its header is then out of date.
ERRORS_MAX = 50

ROLE_RANK = 1
ROLE_WORKER = 2
ROLES = {ROLE_RANK: "rank", ROLE_WORKER: "worker"}

# Phases of a process. The exclusive phases of a step come first; the labelled ones interrupt `gap`.
PHASES = ("start", "input_wait", "forward", "backward", "clip", "optimizer", "gap", "evaluation", "checkpoint", "ended")
PHASE_CODE = {name: code for code, name in enumerate(PHASES)}

# Slot: sequence, kind, flags, steps beyond the first in this record, payload, and the sequence again.
FLAG_BITS = 16  # readers add these steps above the flags
PAYLOAD_FIELDS_MAX = (SLOT_BYTES - struct.calcsize("<QHHIQ")) // 8

KIND_STEP = 1
KIND_GPU_STEP = 2
KIND_COMM = 3
KIND_SPAN = 4
KIND_BATCH = 5
KIND_PROFILED = 6
KIND_PART = 7
KIND_COLLECTIVES = 8

FLAG_EPOCH_START = 1  # this step contains the first training fetch of an iterator
FLAG_SKIPPED_UPDATE = 2  # GradScaler skipped the optimizer (inf or nan in the gradients)
FLAG_NO_LOADER = 4  # no DataLoader fed this step: input wait is unknown, not zero
FLAG_NO_OPTIMIZER = 8  # the optimizer's step is invisible (compiled): each backward counts as a step
FLAG_COMM_SAMPLED = 16  # DDP stamped this step
FLAG_FIRST_BATCH = 32  # a worker's first batch after its start
FLAG_TAIL = 64  # not a step: the time after the last step, written at exit
FLAG_DEEP = 256  # torch's profiler started, ran or stopped in this step: a deep window
FLAG_TRACED = (
    512  # never written by a rank: the step comes from a file of torch's profiler, with its times and nothing else
)
FLAG_CLOCKED = (
    128  # CPU clocks were read in this step: short steps read them only sometimes, as each costs a system call
)

# Payloads: signed 64-bit integers in this order. Units: _ns nanoseconds, others counts.
STEP_FIELDS = (
    "step",  # index of the optimizer update in this rank, from 0
    "t_start_ns",
    "t_end_ns",
    # exclusive phases up to checkpoint_ns; they sum to t_end - t_start
    "input_wait_ns",
    "forward_ns",
    "backward_ns",
    "clip_ns",  # end of backward to start of optimizer: unscaling, clipping, other work of the loop
    "optimizer_ns",
    "gap_ns",  # end of optimizer to next training fetch, without the labelled parts that follow
    "evaluation_ns",
    "checkpoint_ns",
    # CPU time of the training thread in the same phases, only in clocked steps: a wait that uses CPU time is work
    "input_wait_cpu_ns",
    "forward_cpu_ns",
    "backward_cpu_ns",
    "optimizer_cpu_ns",
    "gap_cpu_ns",
    "run_delay_ns",  # time the training thread waited for a core, since the last reading (in a clocked step or at a flush)
    "gc_ns",  # garbage collections; their phases include this time, too
    "loader_start_ns",  # creating training iterators and their workers; part of input_wait
    # loading inside the training process (num_workers=0), part of input_wait, timed in clocked steps
    "fetches",  # timed batches
    "fetch_ns",
    "fetch_cpu_ns",
    "fetch_delay_ns",
    "fetch_blocks",  # 512-byte blocks read from a device by this thread
    "samples",
    "micro_batches",
    "loader",  # id of the DataLoader, -1 unknown
    "self_ns",  # the recorder's own cost in this step
    "compute_system_ns",  # CPU time in the kernel during forward and backward (page faults, mostly), in clocked steps
)
GPU_STEP_FIELDS = (  # elapsed on the CUDA stream between the marks of a step
    "step",
    "input_wait_ns",  # the stream was idle waiting for input
    "forward_ns",
    "backward_ns",
    "optimizer_ns",
    "gap_ns",
    "allocated_bytes",
    "reserved_bytes",
    "peak_bytes",
    "alloc_retries",
    # the stream's waits for collectives called from Python: their number, and time by phase; -1 where they were not timed
    "meetings",
    "forward_met_ns",
    "backward_met_ns",
    "optimizer_met_ns",  # clipping included
    "least_met_ns",  # the shortest wait of the forward pass; -1 if there was none
)
COMM_FIELDS = (  # DistributedDataParallel's own stamps of one sampled iteration
    "step",
    "iteration",  # DDP's count
    "forward_ns",
    "compute_ns",  # backward computation
    "comm_ns",
    "overlap_ns",
    "backward_start_ns",  # host stamps, on DDP's own clock: comparable between ranks of one host
    "compute_end_ns",
    "comm_start_ns",  # arrival at the first bucket's all-reduce
    "comm_end_ns",
)
COLLECTIVES_FIELDS = (  # collectives of one step called from Python
    "step",
    "calls",
    "bytes",  # bytes moved: the sum of each call's largest argument
    "bus_bytes",  # bytes that each link carries in a ring algorithm
    "call_ns",
    "waits",  # waits for asynchronous calls
    "wait_ns",
    "asynchronous",
    "on_device",  # calls that only queue work on a GPU and return immediately
    # time the training thread spent in calls and waits, by phase
    "forward_ns",
    "backward_ns",
    "optimizer_ns",  # clipping included
    "gap_ns",
    "aside_ns",  # evaluation, checkpoints, fetching
    "norm_calls",  # calls of synchronised batch norm
    "norm_bytes",
    "norm_ns",
    "group_size",  # size of the largest group
)
SPAN_FIELDS = ("label", "step", "t_start_ns", "t_end_ns", "cpu_ns", "count", "site")
# `fetch`: one batch of a clocked step with several; `count` is its index in the epoch. `pin`: the length is the time to pin `count`
# batches, in any thread. In both `site` is the loader. `unseen`: `count` batches so far without a backward pass and without a sign of
# evaluation; written again with the same start as the count grows. `skipped`: batches skipped to reach the point where training resumes.
SPAN_LABELS = (
    "evaluation", "checkpoint", "gc", "loader_start", "fsync", "index", "fetch", "pin", "unseen", "skipped",
)  # fmt: skip
SPAN_CODE = {name: code for code, name in enumerate(SPAN_LABELS)}
BATCH_FIELDS = (  # one batch made by one worker
    "worker",
    "loader",
    "t_start_ns",
    "t_end_ns",
    "cpu_ns",
    "run_delay_ns",
    "blocks",  # 512-byte blocks read from a device
    "samples",
    "evaluation",  # always -1: the loader shows it
    "wait_ns",  # idle time before this batch, while waiting for an index
    "number",  # index of this batch in its worker, from 0
    "system_ns",  # the kernel's part of the CPU time: mostly page faults in shared memory
    "sending_ns",  # CPU time of the sending threads since the previous batch; -1 unknown
    "gc_ns",  # garbage collections in the thread that makes the batch; -1 if they were not noted
)
PROFILED_FIELDS = (  # one batch with a profiled sample; -1 unknown
    "worker",  # -1 in the training process
    "loader",
    "t_start_ns",
    "t_end_ns",
    "samples",
    "covered",  # number of profiled samples: one, or all if they can't be separated
    "wall_ns",  # wall time of the profiled samples
    "cpu_ns",
    "collate_ns",
    "collate_cpu_ns",
    "batch_bytes",
    "width",  # of the image before transforms
    "height",
    "file_bytes",
    "self_ns",  # cost of profiling, outside these times
)
PART_FIELDS = (  # one part of a profiled sample
    "worker",
    "loader",
    "t_end_ns",
    "part",  # the number in the name of the part file
    "wall_ns",
    "cpu_ns",
)
FIELDS = {
    KIND_STEP: STEP_FIELDS,
    KIND_GPU_STEP: GPU_STEP_FIELDS,
    KIND_COMM: COMM_FIELDS,
    KIND_COLLECTIVES: COLLECTIVES_FIELDS,
    KIND_SPAN: SPAN_FIELDS,
    KIND_BATCH: BATCH_FIELDS,
    KIND_PROFILED: PROFILED_FIELDS,
    KIND_PART: PART_FIELDS,
}
SLOT = {
    kind: struct.Struct("<QHHI%dq%dxQ" % (len(fields), 8 * (PAYLOAD_FIELDS_MAX - len(fields))))
    for kind, fields in FIELDS.items()
}

# The work of a step in the facts, one row per change. `first` identifies the first learning parameter.
WORK_FIELDS = ("step", "trained", "first", "batch_bytes")
SIZES_APART = 1.1  # batch sizes within this ratio count as equal
# Denormal numbers in the facts: sums over the observations (`looks`) from `step` on. `flushed`: observations of a thread that flushes them.
DENORMAL_FIELDS = (
    "step",
    "looks",
    "flushed",
    "weights",
    "denormal_weights",
    "gradients",
    "denormal_gradients",
    "state",
    "denormal_state",
)
