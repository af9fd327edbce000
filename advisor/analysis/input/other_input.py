"""Finds the input of loops that no torch loader feeds, from stack samples and CPU clocks of the time before the backward pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.stacks.after_update import loop_paths
from rn50_advisor.advisor.analysis.stacks.loss_lines import computes_loss, model_lines
from rn50_advisor.advisor.analysis.stacks.stack_profiles import after_update
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.input.input_source import FeedSamples, InputSource
from rn50_advisor.advisor.model.recording import AnyEvent, Recording, data_of
from rn50_advisor.probes.documents.code_places import UserLine
from rn50_advisor.probes.documents.event_documents import KnownStack, StackProfile, StackSample
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED

# Fewer samples show little: with 8, a share of 0.5 may be anything from 0.2 to 0.8.
_SAMPLES_MIN = 8
# A stack with a frame in one of these packages is making batches, whatever it waits for.
_LIBRARIES = {
    "/nvidia/dali/": "nvidia.dali",
    "/ffcv/": "ffcv",
    "/webdataset/": "webdataset",
    "/torchdata/": "torchdata",
    "/torch/utils/data/": "torch.utils.data",
    "/datasets/": "datasets",
    "/streaming/": "streaming",
    "/litdata/": "litdata",
    "/tensorflow/": "tensorflow",
    "/grain/": "grain",
    "/prefetch_generator/": "prefetch_generator",
    "/petastorm/": "petastorm",
}
_INSTALLED = ("site-packages/", "dist-packages/")
# Frames of the backward pass and the optimizer. Profiles record no phase, but their stacks show these.
_OTHER_PHASES = ("/torch/_tensor.py", "/torch/autograd/", "/torch/optim/")
_MODEL = ("/torch/nn/", "/torch/_dynamo/", "/torch/_inductor/", "/torch/amp/")
# (end of the file's name, functions) in which a thread waits for another one
_WAITS = (
    ("threading.py", ("wait", "acquire", "join", "_wait_for_tstate_lock")),
    ("queue.py", ("get",)),
    ("/queues.py", ("get",)),
    ("connection.py", ("recv", "recv_bytes", "_recv", "_recv_bytes", "poll", "_poll", "wait")),
    ("selectors.py", ("select",)),
    ("_base.py", ("result",)),
    ("subprocess.py", ("wait", "communicate", "_wait")),
)
# Calls into C leave no frame. Only the user's own line shows them.
_WAITING_LINE = re.compile(r"\.(get|wait|result|recv|recv_bytes|acquire|join|read)\(|\bsleep\(")


def feed(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    accounts: StepAttribution,
    loaders: Sequence[LoaderFacts],
) -> InputSource | None:
    """The input of ranks that no torch loader feeds; None if torch's loaders feed every rank."""
    without_loader = [rank for rank, steps in steady.items() if not steps.fed]
    if not without_loader:
        return _timed(steady, loaders)
    facts = _facts(recording, without_loader)
    libraries = tuple(dict.fromkeys(name for f in facts for name in f.get("input_libraries", ())))
    worst = max(without_loader, key=lambda rank: accounts.own[rank]["forward"])
    on_gpu = any(f.get("cuda") for f in facts)
    another = any(f.get("fetches_in_another_thread") for f in facts)
    return InputSource(
        library="",
        measured=False,
        libraries=libraries,
        another_thread=another,
        chunk_s=accounts.own[worst]["forward"],
        blocked_s=None if on_gpu else _blocked_s(steady[worst]),
        samples=_feed_samples(recording, without_loader),
    )


def _timed(steady: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts]) -> InputSource | None:
    """The input of a library whose iterators the recorder times; None if no rank uses one."""
    for rank in sorted(steady):
        loader = training_loader(loaders, rank)
        if loader is not None and loader.library:
            file, line = (loader.file, loader.line) if loader.file else (loader.fetch_file, loader.fetch_line)
            return InputSource(loader.library, True, Where(file, line) if file else None)
    return None


def _facts(recording: Recording, ranks: Iterable[int]) -> list[RankFacts]:
    processes = process_by_rank(recording.processes)
    return [recording.facts.get(processes[rank].pid, {}) for rank in ranks if rank in processes]


def _blocked_s(steps: RankSteps) -> float | None:
    """Seconds per step before the backward pass that are neither compute nor waiting for a core, from steps with CPU clocks."""
    clocked = steps.sample & ((steps.flags & FLAG_CLOCKED) != 0)
    if not clocked.any():
        return None
    c = steps.columns
    # a clocked step's delay may include all steps since the previous clocked one, so the mean over all steps is used
    return max(0.0, float((c["forward"] - c["forward_cpu"])[clocked].mean()) - steps.per_step("run_delay"))


@dataclass(frozen=True, slots=True)
class _SampleKind:
    kind: str  # fetching, waiting, model, elsewhere
    library: str
    line: tuple[str, int, str] | None


def _feed_samples(recording: Recording, ranks: Sequence[int]) -> FeedSamples | None:
    """Stack samples and profiles of these ranks from before the update; None if there are too few."""
    seen: Counter[_SampleKind] = Counter()
    wanted, paths = frozenset(ranks), loop_paths(recording, ranks)
    stacks = [(rank, count, stack) for rank, count, stack in _stacks(recording.events) if rank in wanted]
    of_model = model_lines(stack["frames"] for *_, stack in stacks)
    for rank, count, stack in stacks:
        known = paths.get(rank)
        sample = None if known and after_update(stack["frames"], known) else _classified(stack)
        if (
            sample is not None
            and sample.kind == "elsewhere"
            and computes_loss(stack["frames"], of_model, recording.sources)
        ):
            sample = replace(sample, kind="model")
        if sample is not None:
            seen[sample] += count
    total = seen.total()
    if total < _SAMPLES_MIN:
        return None
    kinds, libraries, lines = Counter[str](), Counter[str](), Counter[tuple[str, int, str]]()
    for sample, count in seen.items():
        kinds[sample.kind] += count
        if sample.library:
            libraries[sample.library] += count
        if sample.line and sample.kind != "model":
            lines[sample.line] += count
    (file, line, function), _ = lines.most_common(1)[0] if lines else (("", 0, ""), 0)
    return FeedSamples(
        count=total,
        fetching=kinds["fetching"] / total,
        waiting=kinds["waiting"] / total,
        model=kinds["model"] / total,
        library=libraries.most_common(1)[0][0] if libraries else "",
        where=Where(file, line) if file else None,
        function=function,
    )


def _stacks(events: Sequence[AnyEvent]) -> Iterator[tuple[int, int, KnownStack]]:
    """Yields (rank, count, stack) for single samples from before a backward pass, and for all stacks of profiles."""
    for event in events:
        sample, profile = data_of(event, StackSample), data_of(event, StackProfile)
        if event.rank is None:
            continue
        if sample is not None and sample.get("phase") in ("gap", "clip") and sample.get("step", 0) >= 1:
            yield event.rank, 1, sample
        for row in profile["stacks"] if profile is not None else ():
            yield event.rank, row["count"], row


def _classified(stack: KnownStack) -> _SampleKind | None:
    """Classifies one stack; None if it is in the backward pass or in an optimizer."""
    frames = [(frame["file"], frame["function"]) for frame in stack["frames"]]
    user = stack.get("user")
    line = (user["file"], user["line"], user["function"]) if user else None
    library = next((name for file, _ in frames if (name := _library(file))), "")
    if library:
        return _SampleKind("fetching", library, line)
    if any(part in file for file, _ in frames for part in _OTHER_PHASES):
        return None
    if any(part in file for file, _ in frames for part in _MODEL):
        return _SampleKind("model", "", line)
    return _SampleKind("waiting" if _waits(frames, user) else "elsewhere", "", line)


def _library(file: str) -> str:
    """The known library that an installed file belongs to; empty if none. A user's folder of the same name does not count."""
    place = next((file[file.rindex(part) + len(part) - 1 :] for part in _INSTALLED if part in file), "")
    return next((name for part, name in _LIBRARIES.items() if place.startswith(part)), "")


def _waits(frames: Sequence[tuple[str, str]], user: UserLine | None) -> bool:
    innermost = frames[:3]
    if any(file.endswith(end) and function in names for file, function in innermost for end, names in _WAITS):
        return True
    if user is None or not frames or frames[0] != (user["file"], user["function"]):
        return False
    return bool(_WAITING_LINE.search(user.get("text", "")))
