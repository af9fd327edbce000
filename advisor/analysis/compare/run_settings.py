"""Lists the settings of a run as flat names and short values, and compares those of two runs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rn50_advisor.advisor.model.documents.comparison import FactChange
from rn50_advisor.advisor.model.report import Report

# Properties of a single process or object. They always differ between runs and explain nothing.
_PASSING = frozenset(
    (
        "pid", "main_thread", "argv", "rank", "local_rank", "world_size", "group_size", "environment_rank", "save_sites", "exception",
        "run_delay", "visible_optimizer", "mounts", "started", "id", "line", "file", "training", "collections", "uuid", "hostname",
        "syncs", "copies", "again", "varies", "calls", "bytes", "ns", "searched_iterations", "iterations_with_unused",
        "work", "padding", "padded_ends", "unused_gradients", "batch_sizes", "operations", "compilations", "evaluation_sites",
        "evaluation_batches", "denormals", "tables", "first_batches", "looks", "indices_timed",
        "watched_gradients", "backward_nodes", "made", "held_ns", "in_module", "for_metrics", "first_evaluated",
        "piled_hooks", "has_forward_sync", "frozen_networks", "repeated_passes",
    )
)  # fmt: skip
# Which of several like things a property belongs to: GPUs are compared by what they are, not one by one.
_PLACES = frozenset(("index", "pci_bus_id", "a", "b"))
_VERSIONS = ("python", "torch", "advisor", "driver", "driver_cuda", "nccl", "cudnn")
_PASSING_VARIABLE = re.compile(r"(PORT|JOBID|_ID|_PID|STEPID|NODELIST|_DIR|_FILE)$")
_NUMBER = re.compile(r"-\.?\d")
_MODEL_OPTIONS = ("model", "arch", "network", "net", "backbone", "model-name", "model_name")

Circumstances = Mapping[tuple[str, str], str]  # (group, name) -> value


def circumstances(report: Report) -> Circumstances:
    """Settings of a run by group and name. The groups are arguments, loader, job, versions, environment, machine and NCCL."""
    found: dict[tuple[str, str], str] = {("arguments", name): value for name, value in options(report.job.argv).items()}
    about: Mapping[str, Any] = report.facts.get("0") or next(iter(report.facts.values()), {})
    loader = training_loader(about)
    found.update({("loader", name): value for name, value in _flat(loader)})
    rest = {name: value for name, value in about.items() if name not in ("loaders", *_VERSIONS)}
    found.update({("job", name): value for name, value in _flat(rest)})
    everything = {**about, **report.environment}
    found.update({("versions", name): _short(everything[name]) for name in _VERSIONS if everything.get(name)})
    variables = report.environment.get("variables") or {}
    found.update({("environment", n): str(v) for n, v in variables.items() if not _PASSING_VARIABLE.search(n)})
    own = ("variables", *_VERSIONS, *(("cwd",) if about.get("cwd") else ()))
    machine = {n: v for n, v in report.environment.items() if n not in own}
    found.update({("machine", name): value for name, value in _flat(machine)})
    found.update({("NCCL", name): value for name, value in _flat(_paths(report.facts.get("nccl") or {}))})
    return found


def changes(base: Circumstances, other: Circumstances) -> tuple[FactChange, ...]:
    """Settings that differ, in the order of the first run."""
    keys = dict.fromkeys([*base, *other])
    groups = list(dict.fromkeys(group for group, _ in keys))
    differing = [key for key in keys if base.get(key) != other.get(key)]
    differing.sort(key=lambda key: groups.index(key[0]))
    return tuple(
        FactChange(group, name, base.get((group, name)), other.get((group, name))) for group, name in differing
    )


def other_job(base: Report, other: Report) -> str:
    """The reason why a step does different work in these two runs; empty if none is known."""
    old, new = base.throughput.batch_size, other.throughput.batch_size
    if old and new and abs(new - old) > 0.01 * old:
        return f"batch size {old:g} → {new:g} per rank: a step does different work"
    return other_model(base, other)


def other_device(base: Report, other: Report) -> str:
    """`NVIDIA L40S → CPU`; empty if both runs train on the same kind of device."""
    abouts: list[Mapping[str, Any]] = [next(iter(report.facts.values()), {}) for report in (base, other)]
    names = [(about.get("cuda") or {}).get("name") for about in abouts]
    return f"{names[0] or 'CPU'} → {names[1] or 'CPU'}" if names[0] != names[1] else ""


def other_model(base: Report, other: Report) -> str:
    """The reason why the runs train different models; empty if none is known."""
    was, now = _parameters(base), _parameters(other)
    if any(was[name] != now[name] for name in was.keys() & now.keys()):
        return "the models have different parameters: a step does different work"
    given = [options(report.job.argv) for report in (base, other)]
    for name in _MODEL_OPTIONS:
        one, two = given[0].get(f"--{name}"), given[1].get(f"--{name}")
        if one != two:
            return f"--{name} {one or 'not given'} → {two or 'not given'}: a step does different work"
    return ""


def options(argv: Sequence[str]) -> dict[str, str]:
    """Parses a command line: `--name value`, `--name=value` and `--flag` by name, other arguments by position."""
    found: dict[str, list[str]] = {}
    words, places = list(argv), 0
    while words:
        word = words.pop(0)
        if word.startswith("-") and len(word) > 1 and not _NUMBER.match(word):
            name, given, value = word.partition("=")
            if not given:
                value = words.pop(0) if words and not words[0].startswith("-") else "yes"
        else:
            name, value = ("program", word.rpartition("/")[2]) if places == 0 else (f"argument {places}", word)
            places += 1
        found.setdefault(name, []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def training_loader(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """The loader that feeds the training, from one rank's facts."""
    loaders = [loader for loader in about.get("loaders") or () if isinstance(loader, Mapping)]
    known = [loader for loader in loaders if loader.get("training")]
    return known[-1] if known else loaders[0] if len(loaders) == 1 else {}


def _parameters(report: Report) -> dict[str, Any]:
    """Numbers that identify a model: bytes under DDP and tensors in the optimizer. Unknown ones are absent."""
    about: Mapping[str, Any] = report.facts.get("0") or {}
    sizes = [d.get("total_parameter_size_bytes") for d in about.get("ddp") or () if isinstance(d, Mapping)]
    found = {"bytes": sizes or None, "tensors": (about.get("optimizer") or {}).get("parameters")}
    return {name: value for name, value in found.items() if value is not None}


def _paths(nccl: Mapping[str, Any]) -> Mapping[str, Any]:
    """Connections between ranks, without their number, which follows from the world size."""
    counted = {name: sorted(nccl.get(name) or ()) for name in ("transports", "algorithms")}
    return {**{name: value for name, value in nccl.items() if name not in ("version", "ranks", "nodes")}, **counted}


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in mapping.items():
        if key in _PASSING or key.endswith("_unix_s"):
            continue
        name = f"{prefix}{key}"
        if name == "gpus":
            yield name, str(len(value))
        only = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
        if isinstance(only, Mapping) and only:
            yield from _flat({n: v for n, v in only.items() if only is value or n not in _PLACES}, f"{name}.")
        elif isinstance(value, (list, tuple)) and value and all(isinstance(each, Mapping) for each in value):
            yield from _counted(value, name)
        elif value is not None and value not in ({}, [], ""):
            yield name, _short(_lasting(value))


def _counted(things: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[tuple[str, str]]:
    """Each property of several like things: its value if all share it, else `7 × 700, 350`."""
    for name in dict.fromkeys(name for each in things for name in each if name not in _PASSING | _PLACES):
        given = Counter(_short(_lasting(each[name])) for each in things if each.get(name) not in (None, {}, [], ""))
        alike = len(given) == 1
        values = [value if alike or times == 1 else f"{times} × {value}" for value, times in given.most_common()]
        if values:
            yield f"{prefix}.{name}", ", ".join(values)


def _lasting(value: Any) -> Any:
    """The value without properties of a single process or object, at any depth."""
    if isinstance(value, Mapping):
        return {name: _lasting(each) for name, each in value.items() if name not in _PASSING}
    return [_lasting(each) for each in value] if isinstance(value, (list, tuple)) else value


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value):
        return ", ".join(map(str, value))
    return json.dumps(value, default=str, ensure_ascii=False, sort_keys=True)
