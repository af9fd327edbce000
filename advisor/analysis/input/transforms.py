"""Measures the cost of a sample by transform, from single samples profiled in workers or in the training process."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.input.making_samples import MakingSample, making_samples
from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.written_names import last_name
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.input.data_loaders import within
from rn50_advisor.advisor.model.input.sample_cost import PartKind, SampleCost, SampleLine, SamplePart
from rn50_advisor.advisor.model.measures.input_measures import (
    BATCH_COLLATE_S,
    BATCH_MEGABYTES,
    SAMPLE_CPU_S,
    SAMPLE_FILE_KB,
    SAMPLE_LOOKS,
    SAMPLE_MEGAPIXELS,
    SAMPLE_TRANSFORM_SHARE,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Source, Table
from rn50_advisor.probes.documents.loader_documents import DescribedDataset, PartName

# With fewer profiled samples, one that takes 2.5 times as long as the others changes a share by more than a tenth.
_SAMPLES_MIN = 15
# Fewer are enough if they are alike: no part's share of the time has a larger standard error than this.
_SAMPLES_ALIKE_MIN = 8
_ALIKE_ERROR_MAX = 0.02
_PARTS_MAX = 30
_LINES_MAX = 5
_PATH_SHARE = 0.5  # of the stack samples: what most of them share
_NOTHING: Table = np.empty(0, [(name, np.int64) for name in ("t_end_ns", "loader", "cpu_ns")])
_KINDS = ("transform", "load", "rest")

Named = tuple[PartKind, str, str, int]


def sample_cost(
    recording: Recording, steady: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts]
) -> SampleCost | str:
    """The cost of a sample over all ranks, or the reason why it is unknown."""
    kept = [_of_rank(recording, steps, training_loader(loaders, rank)) for rank, steps in steady.items()]
    profiled, parts = ([rows for rows in tables if rows.size] for tables in zip(*kept, strict=True))
    if not profiled:
        return (
            "no sample was seen being loaded: another framework's loader, tensors in memory, or whole batches at once"
        )
    seen, made = np.concatenate(profiled), np.concatenate(parts) if parts else _NOTHING
    samples = int(seen["covered"].sum())
    few = f"only {samples} samples were profiled while they were made"
    if samples < _SAMPLES_ALIKE_MIN or made.size == 0:
        return few
    cpu_s, wall_s = (float(seen[name].sum()) / 1e9 / samples for name in ("cpu_ns", "wall_ns"))
    shares = _placed(recording, _parts(recording, made, cpu_s, wall_s), training_loader(loaders, min(steady)))
    if samples < _SAMPLES_MIN and max(part.error for part in shares) > _ALIKE_ERROR_MAX:
        return few
    making = [*making_samples(recording, steady)]
    return SampleCost(
        looks=samples,
        cpu_s=cpu_s,
        wall_s=wall_s,
        parts=shares,
        collate_s=_mean(seen["collate_ns"], 1e-9),
        batch_bytes=_mean(seen["batch_bytes"]),
        width=_mean(seen["width"]),
        height=_mean(seen["height"]),
        file_bytes=_mean(seen["file_bytes"]),
        lines=_lines(making),
        path=_path(making),
    )


def _path(samples: Sequence[MakingSample]) -> tuple[SampleLine, ...]:
    """From the line that the loader calls, line by line the one that most of the samples go through, as long as it is half of all."""
    path, total = list[SampleLine](), sum(sample.count for sample in samples)
    inside = [(sample.count, _lines_in(sample)) for sample in samples]
    while True:
        depth, counts = len(path), Counter[tuple[str, str, int]]()
        for count, lines in inside:
            if len(lines) > depth:
                counts[lines[depth]] += count
        line, seen = next(iter(counts.most_common(1)), (None, 0))
        if line is None or seen < _PATH_SHARE * total:
            return tuple(path)
        path.append(SampleLine(*line, seen, total))
        inside = [(count, lines) for count, lines in inside if len(lines) > depth and lines[depth] == line]


def _lines_in(sample: MakingSample) -> list[tuple[str, str, int]]:
    """The user's lines in a stack, outermost first."""
    user = sample.data.get("user")
    frames = [user, *sample.data.get("callers", ())] if user else []
    return [(frame["function"], frame["file"], frame["line"]) for frame in reversed(frames)]


def _lines(samples: Sequence[MakingSample]) -> tuple[SampleLine, ...]:
    """The user's innermost lines that stacks show most often while samples are made. Stacks of library code alone count in the total."""
    found: Counter[tuple[str, str]] = Counter()
    lines: dict[tuple[str, str], Counter[int]] = {}
    for sample in samples:
        if user := sample.data.get("user"):
            key = user["function"], user["file"]
            found[key] += sample.count
            lines.setdefault(key, Counter())[user["line"]] += sample.count
    total = sum(sample.count for sample in samples)
    return tuple(
        SampleLine(function, file, lines[function, file].most_common(1)[0][0], seen, total)
        for (function, file), seen in found.most_common(_LINES_MAX)
    )


def _of_rank(recording: Recording, steps: RankSteps, loader: LoaderFacts | None) -> tuple[Table, Table]:
    """Profiled samples and their parts, from training batches made in the steady steps."""
    found: list[Table] = []
    for tables in (recording.looks, recording.parts):
        rows = tables.get(steps.rank, _NOTHING)
        steady = (rows["t_end_ns"] > steps.start_ns.min()) & (rows["t_end_ns"] < steps.end_ns.max())
        if loader is not None:
            steady &= (rows["loader"] == loader.id) | (rows["loader"] < 0)
        found.append(rows[steady])
    profiled, parts = found
    return profiled[profiled["cpu_ns"] > 0], parts


def _mean(values: NDArray[np.int64], unit: float = 1.0) -> float | None:
    """Mean of the known values; None if there is none."""
    known = values[values >= 0]
    return float(known.mean()) * unit if known.size else None


def _parts(recording: Recording, rows: Table, cpu_s: float, wall_s: float) -> tuple[SamplePart, ...]:
    """The costliest parts. Shares are relative to all parts, so they hold even if retention thinned samples and parts differently."""
    names = {int(part): _named(recording.part_names.get(int(part), {})) for part in np.unique(rows["part"])}
    whole_cpu, whole_wall = (max(float(rows[name].sum()), 1.0) for name in ("cpu_ns", "wall_ns"))
    found = []
    for named in dict.fromkeys(names.values()):
        numbers = [part for part, name in names.items() if name == named]
        of_part = np.isin(rows["part"], numbers)
        part_share = float(rows["cpu_ns"][of_part].sum()) / whole_cpu
        took_s = wall_s * float(rows["wall_ns"][of_part].sum()) / whole_wall
        error = _error(rows, of_part, part_share, whole_cpu)
        found.append(SamplePart(*named, cpu_s * part_share, took_s, part_share, error))
    return tuple(sorted(found, key=lambda part: -part.cpu_s)[:_PARTS_MAX])


def _placed(recording: Recording, parts: tuple[SamplePart, ...], loader: LoaderFacts | None) -> tuple[SamplePart, ...]:
    """The parts, with the lines that make a library's transforms."""
    if loader is None:
        return parts
    places = {
        part.name: place_of_transform(recording.sources, loader.dataset, part.name)
        for part in parts
        if part.kind == "transform" and not part.file
    }
    return tuple(
        part if (at := places.get(part.name)) is None else replace(part, made_file=at[0], made_line=at[1])
        for part in parts
    )


def place_of_transform(sources: Sequence[Source], dataset: DescribedDataset, name: str) -> tuple[str, int] | None:
    """The line of the transform in the only list that has the data set's transforms in their order, or else of the only call that makes
    one of this name; None where there are several.
    """
    lists = (each.get("transforms") for each in within(dataset))
    steps = tuple(tuple((step or "").rpartition(".")[2] for step in names) for names in lists if names)
    return _place_of_call(tuple(sources), steps, name.rpartition(".")[2])


# A live job is analysed each second, with the same sources.
@functools.lru_cache(maxsize=64)
def _place_of_call(
    sources: tuple[Source, ...], lists: tuple[tuple[str, ...], ...], short: str
) -> tuple[str, int] | None:
    listed = {
        (source.path, line)
        for source, tree in _trees(sources)
        for steps in lists
        for line in _in_list(tree, steps, short)
    }
    made = listed or {
        (source.path, node.lineno)
        for source, tree in _trees(sources)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and last_name(node.func) == short
    }
    return made.pop() if len(made) == 1 else None


def _trees(sources: Sequence[Source]) -> Iterator[tuple[Source, ast.AST]]:
    for source in sources:
        tree = function_at(sources, source.path, 0)
        if tree is not None:
            yield source, tree


def _in_list(tree: ast.AST, steps: Sequence[str], wanted: str) -> Iterator[int]:
    """Lines of the first transform of this name in lists, tuples and arguments that make exactly these."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.List, ast.Tuple, ast.Call)):
            continue
        parts = node.args if isinstance(node, ast.Call) else node.elts
        made = [last_name(part.func if isinstance(part, ast.Call) else part) for part in parts]
        if made == [*steps] and wanted in made:
            yield parts[made.index(wanted)].lineno


def _named(part: PartName) -> Named:
    """Kind, name and place of a part. A part without a recorded name belongs to the rest."""
    kind = part.get("kind") if part.get("kind") in _KINDS else "rest"
    return cast(PartKind, kind), part.get("name") or "other code", part.get("file", ""), part.get("line", 0)


def _error(rows: Table, of_part: NDArray[np.bool_], part_share: float, whole: float) -> float:
    """Standard error of a part's share of the CPU time. Each profiled sample is one draw; its parts have the same end time."""
    _, sample = np.unique(rows["t_end_ns"], return_inverse=True)
    totals = np.bincount(sample, weights=rows["cpu_ns"].astype(np.float64))
    own = np.bincount(sample, weights=np.where(of_part, rows["cpu_ns"], 0).astype(np.float64), minlength=totals.size)
    return float(np.sqrt(((own - part_share * totals) ** 2).sum()) / whole)


def sample_values(cost: SampleCost | str) -> Measured:
    """Measures of a sample's cost, for the rules."""
    found = Measured()
    if isinstance(cost, str):
        found.missing[SAMPLE_TRANSFORM_SHARE, JOB] = cost
        return found
    costliest = cost.costliest_transform
    measured = {
        SAMPLE_LOOKS: float(cost.looks),
        SAMPLE_CPU_S: cost.cpu_s,
        SAMPLE_TRANSFORM_SHARE: costliest.share if costliest else 0.0,
        BATCH_COLLATE_S: cost.collate_s,
        BATCH_MEGABYTES: None if cost.batch_bytes is None else cost.batch_bytes / 1e6,
        SAMPLE_FILE_KB: None if cost.file_bytes is None else cost.file_bytes / 1e3,
        SAMPLE_MEGAPIXELS: cost.width * cost.height / 1e6 if cost.width and cost.height else None,
    }
    found.update({(measure, JOB): value for measure, value in measured.items() if value is not None})
    return found
