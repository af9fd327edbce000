"""Parses torch's message when a GPU's memory runs out, and adds the recorder's facts about the rank.

The texts are those of c10's CUDACachingAllocator: one sentence up to torch 2.0 ("15.78 GiB total capacity; 14.35 GiB already allocated"),
several from 2.1 on ("has a total capacity of 23.65 GiB of which …", spelt "capacty" in 2.1), a table under cudaMallocAsync.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rn50_advisor.advisor.analysis.failures.failure_causes import SPAWNED
from rn50_advisor.advisor.analysis.failures.known_failures import GPU_MEMORY
from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.analysis import Death, Failure
from rn50_advisor.advisor.model.gpu.allocator_settings import growing_segments
from rn50_advisor.advisor.model.gpu.out_of_memory import OutOfMemory
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.probes.documents.event_documents import PrintedLines
from rn50_advisor.probes.documents.model_documents import HeldMemory, ModelFacts
from rn50_advisor.probes.documents.rank_documents import ExceptionFacts, RankFacts
from rn50_advisor.probes.rank.raised_exceptions import device_named

_SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB|TiB)"
_UNITS = {"bytes": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3, "TiB": 1024.0**4}
_SIZE_PATTERNS = {
    "asked": rf"Tried to allocate {_SIZE}|Requested(?: size)?\s*: {_SIZE}",
    "total": rf"total capac(?:i)?ty of {_SIZE}|{_SIZE} total capacity|Device limit\s*: {_SIZE}",
    "free": rf"of which {_SIZE} is free|{_SIZE} free|Free \(according to CUDA\): {_SIZE}",
    "allowed": rf"{_SIZE} allowed;|memory fraction\)\s*: {_SIZE}",
    "allocated": rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated|Currently allocated\s*: {_SIZE}",
    "unallocated": rf"{_SIZE} is reserved by PyTorch but unallocated",
    "reserved": rf"{_SIZE} reserved in total by PyTorch|{_SIZE} cached",
    "own": rf"this process has {_SIZE} memory in use",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _SIZE_PATTERNS.items()}
_OTHER = re.compile(rf"Process \d+ has {_SIZE} memory in use")
# Growth of the tensors at the end of steps. From the first to the last third it must reach both this ratio and this share of the GPU's
# memory, so that one larger batch does not count. Each half must hold this share of the growth: memory that settles grows less in the
# second half (as in GPU004).
_GROWTH_MIN = 1.2
_GREW_SHARE = 0.10
_HALF_GROWTH_SHARE = 0.3
_WARM_UP = 4  # a quarter of the readings is warm-up: gradients, optimizer state and caches are allocated
_READINGS_MIN = 6  # two for each third
# Expected optimizer state before it exists, by the optimizer's name, in copies of the parameters.
_STATE_COPIES = {
    "Adam": 2.0,
    "AdamW": 2.0,
    "NAdam": 2.0,
    "RAdam": 2.0,
    "Adamax": 2.0,
    "LAMB": 2.0,
    "RMSprop": 1.0,
    "Adagrad": 1.0,
}


def sizes(text: str) -> dict[str, float]:
    """Bytes by name, as far as the message gives them; empty if it is not an out-of-memory message."""
    if "out of memory" not in text:
        return {}
    found = {}
    for name, pattern in _PATTERNS.items():
        match = pattern.search(text)
        if match:
            value, unit = [group for group in match.groups() if group is not None][:2]
            found[name] = float(value) * _UNITS[unit]
    if found.get("allowed", 0.0) > found.get("total", math.inf):
        del found["allowed"]  # cudaMallocAsync's way to say that there is no limit
    if "reserved" in found and "allocated" in found:
        found.setdefault("unallocated", max(0.0, found["reserved"] - found["allocated"]))
    others = _others([float(value) * _UNITS[unit] for value, unit in _OTHER.findall(text)], found)
    if others:
        found["others"] = others
    return found


def _others(listed: list[float], known_sizes: Mapping[str, float]) -> float:
    """Bytes held by the other processes that torch lists; 0 if unknown.

    In a container torch cannot find itself in the list, which has the host's process ids. The smallest process that holds at least as much
    as torch has reserved is then taken to be this one.
    """
    total, own = known_sizes.get("total", 0.0), known_sizes.get("own")
    listed = sorted(size for size in listed if size <= total)  # a larger size means that the driver did not report it
    if own is None and "allocated" not in known_sizes:
        return 0.0
    if own is None:
        torchs = known_sizes["allocated"] + known_sizes.get("unallocated", 0.0)
        own = next((size for size in listed if size >= torchs), torchs)
        if own in listed:
            listed.remove(own)
    return min(sum(listed), max(0.0, total - known_sizes.get("free", 0.0) - own))


def out_of_memory(recording: Recording, deaths: tuple[Death, ...], failure: Failure | None) -> OutOfMemory | None:
    """The numbers of an out-of-memory failure; None if the job failed otherwise or no numbers were reported."""
    if failure is None or failure.kind != GPU_MEMORY:
        return None
    error = next((each for each in _texts(recording, deaths, failure) if len(sizes(each[1])) > 1), None)
    if error is None:
        return None
    rank, text, facts = error
    reported = sizes(text)
    process = process_by_rank(recording.processes).get(rank) if rank is not None else None
    facts = facts or (recording.facts.get(process.pid, {}) if process is not None else {})
    death = next((d for d in deaths if d.rank == rank and d.role == "rank"), None)
    own = next((node.recording for node in recording.nodes if rank in node.ranks), recording)
    steps = death.step if death is not None else 0
    grew = _grew(recording, rank, reported.get("total"))
    return OutOfMemory(
        rank=rank,
        asked=reported.get("asked"),
        total=reported.get("total"),
        free=reported.get("free"),
        allowed=reported.get("allowed"),
        allocated=reported.get("allocated"),
        unallocated=reported.get("unallocated"),
        others=reported.get("others"),
        segments=str(growing_segments(own.meta.environment) or ""),
        **_parts(facts, steps=steps, device=device_named(text)),
        phase=_phase(facts, death),
        batch=_batch(recording, rank, facts),
        steps=steps,
        grew_from=grew[0] if grew else None,
        grew_to=grew[1] if grew else None,
    )


def _texts(
    recording: Recording, deaths: tuple[Death, ...], failure: Failure
) -> Iterator[tuple[int | None, str, RankFacts]]:
    """Yields the rank that reported the error, its full text (a failure keeps only part of the line), and the process's facts if known."""
    for death in deaths:
        if death.exception and not death.follows and failure.rank in (None, death.rank):
            yield death.rank, death.exception, recording.facts.get(death.pid, {})
    for facts in recording.facts.values():
        text = (facts.get("exception") or ExceptionFacts()).get("message", "")
        spawned = SPAWNED.search(text)  # if it matches, these are the parent's facts
        if text and failure.rank in (None, int(spawned[1]) if spawned else facts.get("rank")):
            yield failure.rank, text, {} if spawned else facts
    for event in events_of(recording.events, PrintedLines):
        yield from ((failure.rank, line, RankFacts()) for line in event.data.get("lines", ()))


def _phase(facts: RankFacts, death: Death | None) -> str:
    """Phase in which the error occurred; empty if unknown."""
    if death is None:
        phase = (facts.get("exception") or ExceptionFacts()).get("phase", "")
        return phase if phase not in ("", "start") else "forward"  # it had not reached its first backward pass
    return "" if death.phase == "ended" else death.phase


def _parts(facts: RankFacts, *, steps: int, device: str) -> dict[str, Any]:
    """Bytes that do not depend on the batch size: from the optimizer's parameters, or from DDP and the model if those are unknown.

    The failed stack frames give the most recent values, but not all of them include the optimizer.
    """
    end, seen = (_holdings(held, device) for held in (facts.get("held_at_end"), facts.get("optimizer")))
    model = float(max(end.get("model_bytes", 0), facts.get("model", ModelFacts()).get("bytes", {}).get(device, 0)))
    known = end if "class" in end else seen or end
    if not known:
        learns = float(max((model.get("total_parameter_size_bytes", 0) for model in facts.get("ddp", ())), default=0))
        return {"parameters": learns, "frozen": max(0.0, model - learns), "gradients": learns} if learns else {}
    parameters, state = float(known["parameter_bytes"]), float(known.get("state_bytes", 0))
    # before an optimizer step all gradients exist; when the job failed, some may not
    gradients = float(seen.get("gradient_bytes") or known.get("learning_bytes") or parameters)
    copies = 1.0 if known.get("momentum") else _STATE_COPIES.get(known.get("class", ""), 0.0)
    whole = state if state and steps else max(state, copies * gradients)
    made_since = known is seen and steps > 0  # it was inspected before its first step
    return {
        "parameters": parameters,
        "frozen": max(0.0, model - parameters),
        "gradients": gradients,
        "gradients_held": float(end.get("gradient_bytes", 0)) if end else None,
        "state": whole or None,
        "state_held": whole if made_since else state,
    }


def _holdings(held: HeldMemory | None, device: str) -> HeldMemory:
    """The memory held on this device; empty if the facts are about another device or nothing is held on this one."""
    if held is None or "parameter_bytes" not in held or (device and held.get("device", device) != device):
        return {}
    return held if held["parameter_bytes"] or held.get("model_bytes") else {}


def _batch(recording: Recording, rank: int | None, facts: RankFacts) -> float | None:
    """Samples in a micro-batch: from the last step, else the batch size of the only loader that may feed the training."""
    table = recording.steps.get(rank) if rank is not None else None
    if table is not None and table.size:
        full = table[(table["samples"] > 0) & (table["micro_batches"] > 0)]
        if full.size:
            return float(full["samples"][-1]) / float(full["micro_batches"][-1])
    sizes = {loader.get("batch_size") for loader in facts.get("loaders", ()) if loader.get("training") is not False}
    known = sizes.pop() if len(sizes) == 1 else None
    return float(known) if isinstance(known, int) and known > 0 else None


def _grew(recording: Recording, rank: int | None, total: float | None) -> tuple[float, float] | None:
    """Bytes of tensors at the end of steps, in the first and the last third after the warm-up; None if they did not keep growing."""
    table = recording.gpu_steps.get(rank) if rank is not None else None
    if table is None:
        return None
    held = table["allocated_bytes"][table["allocated_bytes"] >= 0]
    held = held[held.size // _WARM_UP :]
    if held.size < _READINGS_MIN:
        return None
    first, second, third = (float(np.median(part)) for part in np.array_split(held, 3))
    much = third >= _GROWTH_MIN * first and (not total or third - first >= _GREW_SHARE * total)
    lasting = min(second - first, third - second) >= _HALF_GROWTH_SHARE * (third - first)
    return (first, third) if much and lasting else None
