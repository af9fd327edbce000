"""Recognises known failures by the messages of PyTorch (1.10 to 2.15), NCCL and torchrun."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Failure

LINE_MAX = 400
GPU_MEMORY = "GPU memory"
HOST_MEMORY = "host memory"
PINNING = "in pin memory thread"  # of the loader. CUDA reports its lack of host memory as CUDA out of memory


@dataclass(frozen=True, slots=True)
class Known:
    """A known failure and the pattern of its message. `{0}` in the title is the pattern's first group."""

    kind: str
    pattern: re.Pattern[str]
    title: str
    advice: str


def _known(kind: str, pattern: str, title: str, advice: str) -> Known:
    return Known(kind, re.compile(pattern), title, advice)


# The order matters: if a line matches several, the first one is the most specific.
KNOWN = (
    _known(
        "mismatched collectives",
        r"Detected mismatch between collectives on ranks|NCCL WARN Mismatched collective detected"
        r"|op\.preamble\.length <= op\.nbytes",
        "ranks called different collectives",
        "compare what these ranks call there: a branch, a shape or a logging call that differs between ranks",
    ),
    _known(
        "late rank",
        r"Ranks? ([\d, ]+) failed to pass monitoredBarrier",
        "rank {0} never reached the barrier",
        "check what that rank did instead: its last step and line",
    ),
    _known(
        "watchdog",
        r"[Cc]aught collective operation timeout: (?:WorkNCCL\(.*?OpType=(\w+))?",
        "the NCCL watchdog gave up on a collective ({0})",
        "find the rank that did not reach it: the one that reports no timeout, or whose last enqueued work is behind the others'",
    ),
    _known(
        "watchdog stuck",
        r"watchdog got stuck for (\d+) seconds|Heartbeat monitor timed out",
        "the NCCL watchdog itself was stuck (for {0} s)",
        "a CUDA or NCCL call never returned: check dmesg for Xid errors, and look for a rank that died unnoticed; raise "
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC only if such long calls are normal",
    ),
    _known(
        "different models",
        r"DDP expects same model across all ranks|appears not to match sizes of the same param in process",
        "the ranks wrapped different models in DDP",
        "build the model from the same arguments on every rank: look for a class count or a checkpoint that only some ranks load",
    ),
    _known(
        "one GPU for two ranks",
        r"Duplicate GPU detected\s*: (rank \d+ and rank \d+)",
        "{0} use the same GPU",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first collective, and as many GPUs as local ranks",
    ),
    _known(
        HOST_MEMORY,
        rf"{PINNING}(?:.|\n)*out of memory",
        "the host ran out of memory that can be pinned",
        "fewer or smaller batches pinned ahead (prefetch_factor), a higher limit, or pin_memory=False",
    ),
    _known(
        GPU_MEMORY,
        r"(?:CUDA|HIP|XPU) out of memory\.(?: ?(?:Tried to allocate|Allocation was preemptively rejected[^:]*:) ([\d.]+ \w+))?"
        r"|(?:CUDA|HIP|CUDA driver) error: out of memory|would exceed allowed memory\. \(out of memory\)|MPS backend out of memory"
        r"|\bC[Uu]da failure (?:\d+ )?'out of memory'|\b(?:CU|HIP)[A-Z]+_STATUS_ALLOC_FAILED",
        "the GPU's memory ran out (asked for {0})",
        "a smaller batch with accumulation, AMP, activation checkpointing",
    ),
    _known(
        "shared memory",
        r"Unexpected bus error encountered in worker|is killed by signal: Bus error"
        r"|unable to (?:mmap|allocate shared memory|write to file)\b.*torch_",
        "a loader worker ran out of shared memory",
        "a larger /dev/shm (docker: --shm-size=8g), fewer workers or prefetched batches",
    ),
    _known(
        "worker killed",
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: (?!Terminated|Interrupt|Hangup)(\w+)|exited unexpectedly)",
        "a loader worker died ({0})",
        "read what that worker printed; Killed means that the host or container ran out of memory",
    ),
    _known(
        "address in use",
        r"EADDRINUSE|[Aa]ddress already in use",
        "the rendezvous port is already in use",
        "stop the job that still holds it, let torchrun choose one (--standalone or --rdzv-endpoint=localhost:0), or set MASTER_PORT",
    ),
    _known(
        "rendezvous",
        r"Rendezvous(?:Connection|Timeout|Closed|State)?Error|client socket has (?:timed out|failed to connect)"
        r"|seconds waiting for (?:clients|workers)\. (\d+/\d+)|[Tt]imed out initializing process group in store based barrier"
        r"|connect\(\) timed out|wait timeout after \d+ms, keys|DistStoreError: Socket Timeout|gai error: -\d+",
        "the ranks did not find each other ({0} joined)",
        "check that MASTER_ADDR, port, node count and rendezvous id are the same everywhere; else a firewall, or a rank that died first",
    ),
    _known(
        "unused parameters",
        r"Expected to have finished reduction in the prior iteration|Expected to mark a variable ready only once",
        "DDP waits for parameters that took no part in the loss",
        "remove them from the model or use them in the loss; find_unused_parameters=True if they are used only in some steps",
    ),
    _known(
        "device assertion",
        r"device-side assert triggered",
        "a kernel's assertion failed on the GPU",
        "usually an index or a label out of range; run once with CUDA_LAUNCH_BLOCKING=1 to get the line",
    ),
    _known(
        "GPU memory access",
        r"an illegal memory access was encountered|CUDA error: misaligned address",
        "a kernel accessed memory that is not its own",
        "run once with CUDA_LAUNCH_BLOCKING=1 to get the line; suspect custom kernels first",
    ),
    _known(
        "GPU lost",
        r"GPU has fallen off the bus|CUDA error: (uncorrectable ECC|unspecified launch failure|device.* unavailable|no CUDA-capable)",
        "the GPU failed ({0})",
        "check dmesg for Xid errors; if there are any, drain the node and replace it",
    ),
    _known(
        HOST_MEMORY,
        r"DefaultCPUAllocator: .*(?:can't|not enough) |Cannot allocate memory|^(?:\[\w+\]:\s*)?MemoryError"
        r"|Unable to allocate [\d.]+ \w+ for an array",
        "the host's memory ran out",
        "fewer workers or prefetched batches, a smaller cache, a higher limit",
    ),
    _known(
        "shared file",
        r"DataLoader worker(?:.|\n)*(BadZipFile|zlib\.error|Bad CRC-32|inflate\(\) failed|UnpicklingError|Truncated File Read)",
        "a loader worker read wrong bytes of a file ({0}), most likely one that all workers share",
        "open the file in each worker (at its first __getitem__), not in the data set's __init__; damaged if num_workers=0 fails, too",
    ),
    _known(
        "worker tensors",
        r"received 0 items of ancdata|Too many open files\. Communication with the workers",
        "tensors from loader workers took all file descriptors",
        "keep no tensors that came from workers, each holds a descriptor (copy them, or keep loss.item()); or raise `ulimit -n`",
    ),
    _known(
        "open files",
        r"Too many open files",
        "the process ran out of file descriptors",
        "close files that are no longer read, or raise `ulimit -n`",
    ),
    _known("disk", r"No space left on device", "a disk is full", "free some space, or write checkpoints elsewhere"),
    _known(
        "NCCL",
        r"nccl(UnhandledCudaError|SystemError|InternalError|InvalidUsage|InvalidArgument)",
        "NCCL failed ({0})",
        "run again with NCCL_DEBUG=WARN: it names the call and the reason",
    ),
)  # fmt: skip
# Errors of processes whose peer is gone, or that were asked to stop.
_CONSEQUENCE = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|remote process exited or there was a network error|ncclRemoteError"
    r"|NCCL communicator was aborted|ChildFailedError|ProcessExitedException|SignalException|closing signal SIG"
    r"|Observed flight recorder dump signal from another rank|Failed to check the .should dump. flag"
    r"|Broken pipe|[Ss]ocket closed|failed to recv|Connection was likely closed|taking the entire process down"
    r"|is killed by signal: (?:Terminated|Interrupt|Hangup)"
    r"|Timed out waiting \d+ms for (?:recv|send)|Application timeout caused pair closure|failed \(exitcode"
)


def recognised(text: str) -> Failure | None:
    """The known failure that this text reports; None if there is none."""
    for known in KNOWN:
        found = known.pattern.search(text)
        if found:
            group = found.group(1) if known.pattern.groups and found.group(1) else ""
            return failure(known, group, line_of(text, found.start()))
    return None


def failure(known: Known, group: str, line: str) -> Failure:
    title = known.title.format(group) if group else re.sub(r" \([^)]*\{0\}[^)]*\)|\{0\} ?", "", known.title)
    return Failure(known.kind, title, known.advice, None, line)


def is_consequence(text: str) -> bool:
    """True for an error of a rank whose peer had failed before, or that was asked to stop."""
    return bool(_CONSEQUENCE.search(text)) and recognised(text) is None


def line_of(text: str, at: int) -> str:
    """The line of a text that contains position `at`."""
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[begin : end if end >= 0 else len(text)].strip()[:LINE_MAX]
