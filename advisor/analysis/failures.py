"""Why a job failed, in the words of its own last lines and exceptions: known failures by what PyTorch, NCCL and torchrun print of them.

The first cause counts, not the last line: what ranks say whose peer has gone is a consequence. Texts are those of PyTorch 1.10 to 2.15.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from advisor.analysis.flight import stuck_by_flight
from advisor.core.analysis import Death, Failure
from advisor.core.recording import Recording

_LINE_MAX = 400


@dataclass(frozen=True, slots=True)
class Known:
    """A failure by the lines that tell of it. `{0}` in the title is the pattern's first group."""

    kind: str
    pattern: re.Pattern[str]
    title: str
    advice: str


def _known(kind: str, pattern: str, title: str, advice: str) -> Known:
    return Known(kind, re.compile(pattern), title, advice)


# In this order: where one line fits several, the first tells most.
KNOWN = (
    _known(
        "mismatched collectives",
        r"Detected mismatch between collectives on ranks|NCCL WARN Mismatched collective detected"
        r"|op\.preamble\.length <= op\.nbytes",
        "ranks called different collectives",
        "compare what these ranks call at that place: a branch, a shape or a log call that differs between ranks",
    ),
    _known(
        "late rank",
        r"Ranks? ([\d, ]+) failed to pass monitoredBarrier",
        "rank {0} never came to the barrier",
        "look at what that rank did instead: its last step and line",
    ),
    _known(
        "watchdog",
        r"[Cc]aught collective operation timeout: (?:WorkNCCL\(.*?OpType=(\w+))?",
        "the NCCL watchdog gave up on a collective ({0})",
        "find the rank that did not come to it: one that reports no timeout, or whose last enqueued work is behind the others'",
    ),
    _known(
        "watchdog stuck",
        r"watchdog got stuck for (\d+) seconds|Heartbeat monitor timed out",
        "the NCCL watchdog itself was stuck (for {0} s)",
        "a CUDA or NCCL call never returned: look at dmesg for Xid errors, and for a rank that ended unseen; a longer "
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC only where such a long call is normal",
    ),
    _known(
        "different models",
        r"DDP expects same model across all ranks|appears not to match sizes of the same param in process",
        "the ranks wrapped different models in DDP",
        "build the model from the same arguments on every rank: a class count or a checkpoint that only some ranks load",
    ),
    _known(
        "one GPU for two ranks",
        r"Duplicate GPU detected\s*: (rank \d+ and rank \d+)",
        "{0} use the same GPU",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first collective, and as many GPUs as local ranks",
    ),
    _known(
        "GPU memory",
        r"(?:CUDA|HIP) out of memory\. ?(?:Tried to allocate ([\d.]+ \w+))?",
        "the GPU's memory ran out (asked for {0})",
        "a smaller batch with accumulation, AMP, activation checkpointing; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if "
        "much is reserved but not allocated",
    ),
    _known(
        "shared memory",
        r"Unexpected bus error encountered in worker|is killed by signal: Bus error"
        r"|unable to (?:mmap|allocate shared memory|write to file) .*torch_",
        "a loader worker found no room in shared memory",
        "a larger /dev/shm (docker: --shm-size=8g), fewer workers or prefetched batches",
    ),
    _known(
        "worker killed",
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: (\w+)|exited unexpectedly)",
        "a loader worker died ({0})",
        "read what that worker printed; Killed means that the host's or the container's memory ran out",
    ),
    _known(
        "address in use",
        r"EADDRINUSE|[Aa]ddress already in use",
        "the port for the rendezvous is taken",
        "end the job that still holds it, or let torchrun choose: --standalone, or --rdzv-endpoint=localhost:0; else another MASTER_PORT",
    ),
    _known(
        "rendezvous",
        r"Rendezvous(?:Connection|Timeout|Closed|State)?Error|client socket has (?:timed out|failed to connect)"
        r"|seconds waiting for (?:clients|workers)\. (\d+/\d+)|[Tt]imed out initializing process group in store based barrier"
        r"|connect\(\) timed out|wait timeout after \d+ms, keys|DistStoreError: Socket Timeout|gai error: -\d+",
        "the ranks did not find each other ({0} came)",
        "the same MASTER_ADDR, port, number of nodes and rendezvous id everywhere; a firewall; a rank that died before it came",
    ),
    _known(
        "unused parameters",
        r"Expected to have finished reduction in the prior iteration|Expected to mark a variable ready only once",
        "DDP waits for parameters that took no part in the loss",
        "take them out of the model or into the loss; find_unused_parameters=True if they come and go",
    ),
    _known(
        "device assertion",
        r"device-side assert triggered",
        "a kernel's assertion failed on the GPU",
        "mostly an index or a label out of range; run once with CUDA_LAUNCH_BLOCKING=1 for the line",
    ),
    _known(
        "GPU memory access",
        r"an illegal memory access was encountered|CUDA error: misaligned address",
        "a kernel accessed memory that is not its own",
        "run once with CUDA_LAUNCH_BLOCKING=1 for the line; suspect custom kernels first",
    ),
    _known(
        "GPU lost",
        r"GPU has fallen off the bus|CUDA error: (uncorrectable ECC|unspecified launch failure|device.* unavailable|no CUDA-capable)",
        "the GPU failed ({0})",
        "look at dmesg for Xid errors, drain the machine and hand it back if there are some",
    ),
    _known(
        "host memory",
        r"DefaultCPUAllocator: .*(?:can't|not enough) |Cannot allocate memory|^(?:\[\w+\]:\s*)?MemoryError",
        "the host's memory ran out",
        "fewer workers or prefetched batches, a smaller cache, a higher limit",
    ),
    _known("disk", r"No space left on device", "a disk is full", "make room, or write checkpoints elsewhere"),
    _known(
        "NCCL",
        r"nccl(UnhandledCudaError|SystemError|InternalError|InvalidUsage|InvalidArgument)",
        "NCCL failed ({0})",
        "run again with NCCL_DEBUG=WARN: it names the call and the reason",
    ),
)  # fmt: skip
# What is said by those whose peer has gone, or who were told to end.
_CONSEQUENCE = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|remote process exited or there was a network error|ncclRemoteError"
    r"|NCCL communicator was aborted|ChildFailedError|ProcessExitedException|SignalException|closing signal SIG"
    r"|Observed flight recorder dump signal from another rank|Failed to check the .should dump. flag"
    r"|Broken pipe|[Ss]ocket closed|failed to recv|Connection was likely closed|taking the entire process down"
    r"|Timed out waiting \d+ms for (?:recv|send)|Application timeout caused pair closure|failed \(exitcode"
)
_EXCEPTION = re.compile(
    r"^(?:\[\w+\]:\s*)?((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout|Warning)): ?(.*)"
)
_RANK = re.compile(r"^\s*\[(?:rank|default)(\d+)\]:|\[[Rr]ank (\d+)\]|\bRank (\d+)\b|\brank (\d+)\b")
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_ROOT_RANK = re.compile(r"^\s*rank\s*: (\d+) \(")
_ROOT_WITHIN = 6  # lines
# multiprocessing.spawn raises it in the parent
_SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error")
_ENQUEUED = re.compile(r"\bRank (\d+)\].*last enqueued (?:NCCL )?work: (-?\d+)")


def recognised(text: str) -> Failure | None:
    """The failure that this text tells of, if it is a known one."""
    for known in KNOWN:
        found = known.pattern.search(text)
        if found:
            group = found.group(1) if known.pattern.groups and found.group(1) else ""
            return _failure(known, group, _line(text, found.start()))
    return None


def _failure(known: Known, group: str, line: str) -> Failure:
    title = known.title.format(group) if group else re.sub(r" \([^)]*\{0\}[^)]*\)|\{0\} ?", "", known.title)
    return Failure(known.kind, title, known.advice, None, line)


def is_consequence(text: str) -> bool:
    """Said by a rank whose peer had gone before, or that was told to end."""
    return bool(_CONSEQUENCE.search(text)) and recognised(text) is None


def mark_followers(deaths: Iterable[Death]) -> tuple[Death, ...]:
    """Ranks whose own exception says that another had gone before are followers, whenever they ended."""
    return tuple(replace(d, follows=bool(d.exception) and is_consequence(d.exception)) for d in deaths)


def with_leaver(recording: Recording, deaths: tuple[Death, ...]) -> tuple[Death, ...]:
    """Where all ranks that died follow one that had gone, and that one ended in order: it comes first, for it left the others behind."""
    ranks = [death for death in deaths if death.role == "rank"]
    if not ranks or not all(death.follows for death in ranks):
        return deaths
    start = recording.meta.started_ns
    left = [p for p in recording.processes if p.role == "rank" and p.exit_code == 0 and p.ended_ns is not None]
    leaver = min(left, key=lambda p: p.ended_ns or 0, default=None)
    if leaver is None or leaver.ended_ns is None or leaver.rank is None:
        return deaths
    t_s = (leaver.ended_ns - start) / 1e9
    if t_s >= ranks[0].t_s:
        return deaths
    _, step, _ = recording.positions.get(leaver.rank, ("", 0, 0))
    gone = Death(leaver.rank, leaver.pid, t_s, 0, None, False, "ended", step, first=True)
    return (gone, *(replace(death, first=False) for death in deaths))


def failure_of(recording: Recording, deaths: Sequence[Death]) -> Failure | None:
    """What made the job fail, by the exceptions that processes left and by the output that was kept. None: nothing tells."""
    told = [death for death in deaths if death.exception and not death.follows and death.role == "rank"]
    ranks = [death for death in deaths if death.role == "rank" and not death.follows]
    for death in told:
        known = recognised(death.exception)
        if known is not None:
            return replace(known, rank=death.rank)
    if told and told[0] is ranks[0]:
        first = told[0]
        return Failure(
            "exception", first.exception.partition("\n")[0][:_LINE_MAX], "", first.rank, first.exception[:_LINE_MAX]
        )
    found = _before_training(recording) or _in_output(_output(recording))
    aborted = any(death.role == "rank" and death.signal == signal.SIGABRT for death in deaths)
    return _behind_in_flight(recording, found, aborted=aborted)


def _behind_in_flight(recording: Recording, found: Failure | None, *, aborted: bool) -> Failure | None:
    """Of a watchdog's end whose lines name nobody, or were not kept: the one rank that is behind in the dumps which the watchdogs left."""
    if found is None and aborted:
        gave_up = next(_failure(known, "", "") for known in KNOWN if known.kind == "watchdog")
    elif found is not None and found.rank is None and found.kind.startswith("watchdog"):
        gave_up = found
    else:
        return found
    dumps = {
        int(rank): [dump]
        for event in recording.events
        if event.kind == "flight"
        for rank, dump in (event.data.get("ranks") or {}).items()
    }
    stuck = stuck_by_flight(dumps)
    if stuck is None:
        return found
    size = f" of {stuck.elements} elements" if stuck.elements else ""
    which = (
        stuck.differing
        or f"{stuck.kind}{size}, number {stuck.number}: rank {', '.join(map(str, stuck.missing))} not in it"
    )
    line = "; ".join(filter(None, (gave_up.line, f"{stuck.source}: {which}")))[:_LINE_MAX]
    return replace(gave_up, rank=stuck.missing[0] if len(stuck.missing) == 1 else None, line=line)


def _before_training(recording: Recording) -> Failure | None:
    """The exception of a process that ended before it had made a step: the first known one, else the first."""
    trained = {process.pid for process in recording.processes if process.role != "other"}
    ended = {process.pid: process.ended_ns or 0 for process in recording.processes}
    texts = []
    for pid, facts in sorted(recording.facts.items(), key=lambda item: ended.get(item[0], 0)):
        error = facts.get("exception")
        if pid not in trained and isinstance(error, dict):
            text = f"{error.get('type')}: {error.get('message')}"
            spawned = _SPAWNED.search(text)
            rank = int(spawned[1]) if spawned else facts.get("rank")
            if spawned:  # what the child raised stands at the end of its traceback
                text = text.rstrip().rpartition("\n")[2]
            if not is_consequence(text):
                texts.append((text, rank))
    for text, rank in texts:
        known = recognised(text)
        if known is not None:
            return replace(known, rank=_number(rank))
    if texts:
        return Failure(
            "exception", texts[0][0].partition("\n")[0][:_LINE_MAX], "", _number(texts[0][1]), texts[0][0][:_LINE_MAX]
        )
    return None


def _output(recording: Recording) -> list[str]:
    """Of a job behind the screen: lines that tell of errors, and its last ones."""
    return [str(line) for event in recording.events if event.kind == "output" for line in event.data.get("lines") or ()]


def _in_output(lines: Sequence[str]) -> Failure | None:
    """The first known failure among these lines; else the first exception that follows from no other."""
    for number, line in enumerate(lines):
        known = recognised(line)
        if known is not None:
            return replace(known, rank=_first_rank(lines, number, known.kind))
    for number, line in enumerate(lines):
        raised = _EXCEPTION.match(line)
        if raised and not is_consequence(line):
            title = f"{raised[1]}: {raised[2]}" if raised[2] else raised[1]
            return Failure("exception", title[:_LINE_MAX], "", _first_rank(lines, number, ""), line[:_LINE_MAX])
    return None


def _first_rank(lines: Sequence[str], number: int, kind: str) -> int | None:
    """Who failed first: torchrun says so at the end; else who is behind in a collective; else who wrote the line."""
    if kind == "watchdog":  # whoever gives up is waiting: the first to do so is no more guilty than the others
        return _behind(lines)
    wrote = _rank_in(lines[number])
    if wrote is not None:
        return wrote
    for place, line in enumerate(lines):
        if _ROOT.search(line):
            found = (_ROOT_RANK.search(near) for near in lines[place : place + _ROOT_WITHIN])
            return next((int(rank[1]) for rank in found if rank), None)
    return None


def _behind(lines: Sequence[str]) -> int | None:
    """The one rank that has enqueued fewer collectives than the others when the watchdogs gave up."""
    enqueued = {int(found[1]): int(found[2]) for line in lines if (found := _ENQUEUED.search(line))}
    least = min(enqueued.values(), default=0)
    late = [rank for rank, work in enqueued.items() if work == least]
    return late[0] if len(late) == 1 and len(enqueued) > 1 else None


def _rank_in(line: str) -> int | None:
    found = _RANK.search(line)
    return int(next(group for group in found.groups() if group)) if found else None


def _line(text: str, at: int) -> str:
    """The line of a text in which something was found."""
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[begin : end if end >= 0 else len(text)].strip()[:_LINE_MAX]


def _number(rank: object) -> int | None:
    return rank if isinstance(rank, int) and rank >= 0 else None
