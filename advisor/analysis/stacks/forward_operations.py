"""Measures how many operations a step has, how long one takes and what anomaly detection adds, and finds where the user's code computes.

The recorder counts the nodes of autograd's graph in the steps whose CPU clocks it reads. Operations are a function's own where none of
torch's modules makes them: tensor expressions, sparse products, distributions, other libraries. Anomaly detection formats a traceback for
each operation of the forward pass, which stack samples show, and searches all gradients of the backward pass for NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.after_update import evaluation_lines
from rn50_advisor.advisor.analysis.stacks.hot_lines import place
from rn50_advisor.advisor.analysis.stacks.loop_lines import (
    WHOLE_TENSORS,
    profiled_values,
    samples_by_rank,
    working_rows,
)
from rn50_advisor.advisor.analysis.stacks.source.loop_source import loop_apart
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    LINE_SAMPLES_MIN,
    CodeLine,
    SeenStack,
    in_forward,
    inner,
    line_of,
    lines_to,
    place_of,
    profiles_by_rank,
    starts_backward,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_OPERATION_S,
    STEP_OPERATIONS,
    STEP_SEARCHED_ELEMENTS,
    STEP_TRACEBACKS_S,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.code_places import StackFrame, UserLine
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_COUNTED_MIN = 10  # steps
_FUNCTIONS_MAX = 5
_UNREAD_MIN = 0.08  # of the samples
_FORMATTING = ("/traceback.py", "/linecache.py")
_MOST_SHARE = 0.6  # of the samples in the forward pass: lines of a cell that is called in a loop have less each


def operation_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Operations per step, and CPU seconds for each, of ranks whose operations were counted."""
    found, known = Measured(), facts_by_rank(recording)
    for rank in steady:
        facts = known.get(rank, RankFacts())
        counted = facts.get("operations")
        if counted is None or counted["steps"] < _COUNTED_MIN:
            why = "too few steps were counted, or this torch does not number the nodes of its graph"
            found.missing[STEP_OPERATIONS, rank] = found.missing[STEP_OPERATION_S, rank] = why
            continue
        found[STEP_OPERATIONS, rank] = counted["nodes"] / counted["steps"]
        found[STEP_OPERATION_S, rank] = counted["low_ns"] / 1e9
    return found


def anomaly_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds in tracebacks, and elements searched, per step of each rank on a CPU."""
    found, known, on_gpus = Measured(), facts_by_rank(recording), ranks_on_gpus(recording)
    profiles = list(profiles_by_rank(recording))
    samples = samples_by_rank((rank, profile["looks"]) for rank, profile in profiles)
    # torch calls the formatter itself, often with no frame of the user's code in the part of the stack that is kept
    rows = ((rank, row) for rank, profile in profiles for row in profile["stacks"] if _formats(row["frames"]))
    formats = samples_by_rank((rank, row["count"]) for rank, row in rows)
    for rank, steps in steady.items():
        if rank in on_gpus or samples[rank] < LINE_SAMPLES_MIN:
            why = "on a GPU" if rank in on_gpus else "no profile of the training thread was taken"
            found.missing[STEP_TRACEBACKS_S, rank] = why
        else:
            seen_s = formats[rank] / samples[rank] * steps.per_step_s
            found[STEP_TRACEBACKS_S, rank] = min(steps.per_step("forward"), seen_s)
        timed = known.get(rank, RankFacts()).get("backward_nodes")
        if timed is None or "searched" not in timed:
            why = "on a GPU" if rank in on_gpus else "no backward pass was looked at node by node"
            found.missing[STEP_SEARCHED_ELEMENTS, rank] = why
        else:
            passes = max(1.0, steps.per_step("micro_batches"))
            found[STEP_SEARCHED_ELEMENTS, rank] = timed["searched"] / timed["passes"] * passes
    return found


def forward_values(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    values: Measured,
    measure: RankMeasure,
    seen: Mapping[int, int],
) -> Measured:
    """Seconds per step of what so many samples of each rank found by the source of its model. Ranks on GPUs are left out: the host's
    samples say nothing about kernels.
    """
    on_gpu = ranks_on_gpus(recording)
    on_cpu = {rank: steps for rank, steps in steady.items() if rank not in on_gpu}
    unread = {rank: file for rank, file in _unread(recording).items() if rank in on_cpu and not seen.get(rank)}
    read = {rank: steps for rank, steps in on_cpu.items() if rank not in unread}
    found = profiled_values(recording, read, values, measure, seen)
    for rank, file in unread.items():
        found.missing[measure, rank] = f"the source of its model was not kept: {file}"
    return found


def _formats(frames: Sequence[StackFrame]) -> bool:
    return any(frame["file"].endswith(_FORMATTING) for frame in frames)


def _unread(recording: Recording) -> dict[int, str]:
    """By rank, the file without a source where its forward pass takes most time, if that could hold what is worth a word."""
    kept = {source.path for source in recording.sources if not source.edited}
    found, looks = dict[int, Counter[str]](), Counter[int]()
    for rank, profile in profiles_by_rank(recording):
        looks[rank] += profile["looks"]
        for row in user_rows(profile):
            if row["user"]["file"] not in kept and in_forward(row["frames"]):
                found.setdefault(rank, Counter())[row["user"]["file"]] += row["count"]
    most = {rank: files.most_common(1)[0] for rank, files in found.items()}
    return {rank: file for rank, (file, count) in most.items() if count >= _UNREAD_MIN * looks[rank]}


def forward_lines(recording: Recording) -> tuple[HotLine, ...]:
    """For each rank's profile the innermost of the user's lines, or of their loops, with most of the samples in the forward pass."""
    found = []
    for _, profile in profiles_by_rank(recording):
        lines, depths, leaves = Counter[CodeLine](), dict[CodeLine, tuple[int, bool]](), {}
        whole = 0
        rows = user_rows(profile)
        backwards = lines_to(rows, starts_backward)
        for row in (row for row in rows if in_forward(row["frames"])):
            whole += row["count"]
            users = [frame for frame in reversed(inner(row["frames"])) if is_user_file(frame["file"])]
            of_row = dict[CodeLine, tuple[int, bool]]()
            for depth, frame in enumerate(users):
                of_row[line_of(frame)] = depth, True
                around = frozenset(backwards.get(place_of(frame), ()))
                if (loop := loop_apart(recording.sources, frame["file"], frame["line"], around)) is not None:
                    of_row.setdefault((frame["file"], loop, frame["function"]), (depth, False))
            for key, at in of_row.items():
                lines[key] += row["count"]
                depths[key] = max(depths.get(key, at), at)
                leaves[key] = place(row["frames"][0])
        often = [key for key, count in lines.items() if count >= _MOST_SHARE * whole]
        if often:
            key = max(often, key=lambda key: depths[key])
            found.append(HotLine(*key, leaves[key], lines[key], lines[key] / whole, io=False))
    return tuple(sorted(found, key=lambda line: -line.samples))


def computing_functions(recording: Recording) -> tuple[HotLine, ...]:
    """The user's functions by their own operations on CPUs, longest first, each with its most frequent line; `share`: of all samples."""
    on_gpu = ranks_on_gpus(recording)
    samples = sum(profile["looks"] for rank, profile in profiles_by_rank(recording) if rank not in on_gpu)
    functions, lines = Counter[tuple[str, str]](), Counter[CodeLine]()
    for user, count in _own_operations(recording, on_gpu) if samples >= LINE_SAMPLES_MIN else ():
        functions[user["file"], user["function"]] += count
        lines[line_of(user)] += count
    found = []
    for (file, function), count in functions.most_common(_FUNCTIONS_MAX):
        line = max((key for key in lines if (key[0], key[2]) == (file, function)), key=lambda key: lines[key])
        found.append(HotLine(*line, "", count, count / samples, io=False))
    return tuple(found)


def _own_operations(recording: Recording, on_gpu: Set[int]) -> Iterator[tuple[UserLine, int]]:
    """Yields (the user's line, number of samples that found it awake)."""
    evaluations = evaluation_lines(recording)
    for rank, profile in profiles_by_rank(recording):
        rows = user_rows(profile) if rank not in on_gpu else []
        yield from ((row["user"], n) for row, n in working_rows(rows, evaluations, on_gpu=False) if _is_own(row))


def _is_own(row: SeenStack) -> bool:
    frames = row["frames"]
    below = frames[: next(n for n, frame in enumerate(frames) if is_user_file(frame["file"]))]
    return not any(starts_backward(frame) or any(part in frame["file"] for part in WHOLE_TENSORS) for frame in below)
