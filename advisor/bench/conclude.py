"""Turns measured cells into a `Benchmark`: sweeps with their knee, scaling, main results, comparison with an earlier result. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from rn50_advisor.advisor.bench.bench_plan import knee
from rn50_advisor.advisor.bench.sentences import sentences
from rn50_advisor.advisor.model.documents.benchmark import (
    Against,
    Benchmark,
    Cell,
    CellChange,
    Machine,
    Options,
    ReferenceBand,
    Scaling,
    Sweep,
)
from rn50_advisor.advisor.model.documents.comparison import Change, Estimate
from rn50_advisor.advisor.reference.training_speeds import Tier, band

# Standard deviation between runs of one unchanged job on one machine; `compare` assumes the same.
BETWEEN_RUNS = {"cpu": 0.05, "cuda": 0.02}
_Z_95 = 1.96  # of the normal distribution at 95 %, the confidence of the cells
_CHANGE_SHARE_MIN = 0.01  # as for `compare`: less than 1 % is not a regression
_TIERS: tuple[Tier, ...] = ("typical", "tuned", "course")
Key = TypeVar("Key", bound=Hashable)


def conclude(machine: Machine, options: Options, cells: Iterable[Cell], *, made_unix_s: float) -> Benchmark:
    """Returns everything that follows from the cells, except a comparison with earlier ones."""
    referred = tuple(with_reference(cell, machine, options) for cell in cells)
    made = Benchmark(made_unix_s, machine, options, referred, sweeps(referred), scaling(referred))
    return replace(made, sentences=sentences(made))


def with_reference(cell: Cell, machine: Machine, options: Options) -> Cell:
    """Adds the reference bands of this setting, one per tier, if all devices are of one kind with published measurements."""
    if machine.device != "cuda" or len(set(machine.names)) != 1:
        return cell
    setting, found = cell.setting, []
    for tier in _TIERS:
        known = band(
            machine.names[0],
            gpus=setting.devices,
            precision=setting.precision,
            tier=tier,
            model=options.model,
            size=options.image_size,
        )
        if known is not None:
            found.append(ReferenceBand(tier, known.lo, known.hi, known.source, known.scaled))
    return replace(cell, reference=tuple(found))


def sweeps(cells: Sequence[Cell]) -> tuple[Sweep, ...]:
    """Returns the settings measured at two or more batches, or at one if another did not fit."""
    found = []
    for group in _groups(cells, lambda cell: replace(cell.setting, batch=1)):
        measured = sorted((cell for cell in group if cell.images_per_s), key=lambda cell: cell.setting.batch)
        too_large = min((cell.setting.batch for cell in group if cell.state == "oom"), default=None)
        if len(measured) + (too_large is not None) < 2 or not measured:
            continue
        batches, rates = tuple(c.setting.batch for c in measured), tuple(c.rate for c in measured)
        one = measured[0].setting
        found.append(
            Sweep(
                one.precision,
                one.channels_last,
                one.devices,
                one.data,
                batches,
                rates,
                knee(zip(batches, rates, strict=True)),
                too_large,
            )
        )
    return tuple(found)


def scaling(cells: Sequence[Cell]) -> tuple[Scaling, ...]:
    """Returns the settings measured on one device and on more."""
    found = []
    for group in _groups(cells, lambda cell: replace(cell.setting, devices=1)):
        measured = sorted((cell for cell in group if cell.images_per_s), key=lambda cell: cell.setting.devices)
        if len(measured) < 2 or measured[0].setting.devices != 1:
            continue
        alone, one = measured[0], measured[0].setting
        found.append(
            Scaling(
                one.precision,
                one.channels_last,
                one.batch,
                one.data,
                tuple(cell.setting.devices for cell in measured),
                (Estimate(1.0, 1.0, 1.0), *(_ratio(cell, alone, per=cell.setting.devices) for cell in measured[1:])),
            )
        )
    return tuple(found)


def against(now: Benchmark, then: Benchmark, name: str) -> Benchmark:
    """Adds a comparison with an earlier result. Only equal settings of the same model and image size are compared."""
    usual = max(BETWEEN_RUNS[now.machine.device], BETWEEN_RUNS[then.machine.device])
    notes = [f"runs of one job are taken to differ by {100 * usual:.0f} % in any case"]
    now_options, then_options = (o.options for o in (now, then))
    if (now_options.model, now_options.image_size) != (then_options.model, then_options.image_size):
        notes += [*_differences(now, then, real=False), "another model or image size: nothing is compared"]
        return replace(now, against=Against(name, (), tuple(notes)))
    places = {cell.setting: place for place, cell in enumerate(then.cells) if cell.images_per_s}
    changes = []
    for place, cell in enumerate(now.cells):
        if cell.images_per_s and cell.setting in places:
            other = places[cell.setting]
            speed = _widened(_ratio(cell, then.cells[other]), usual)
            changes.append(CellChange(place, other, speed, judge(speed)))
    notes += _differences(now, then, real=any(now.cells[change.now].setting.data == "real" for change in changes))
    return replace(now, against=Against(name, tuple(changes), tuple(notes)))


def judge(speed: Estimate) -> Change:
    """Returns improved or regressed only if the interval excludes 1 and the change is at least 1 %; else same."""
    if speed.lo > 1.0 and speed.value >= 1.0 + _CHANGE_SHARE_MIN:
        return "improved"
    return "regressed" if speed.hi < 1.0 and speed.value <= 1.0 - _CHANGE_SHARE_MIN else "same"


def slower_than(made: Benchmark, max_regression: float) -> tuple[CellChange, ...]:
    """Returns the cells that are significantly slower than before, by more than this share."""
    changes = made.against.cells if made.against else ()
    return tuple(c for c in changes if c.change == "regressed" and 1.0 - c.speed.value > max_regression)


def _differences(now: Benchmark, then: Benchmark, *, real: bool) -> list[str]:
    """Describes the differences between two benchmarks. `real`: the compared cells include real data."""
    now_options, then_options = now.options, then.options
    pairs: dict[str, tuple[object, object]] = {
        "devices": (now.machine.names or (now.machine.device,), then.machine.names or (then.machine.device,)),
        "host": (now.machine.host, then.machine.host),
        "torch": (now.machine.torch, then.machine.torch),
        "cores": (now.machine.cores, then.machine.cores),
        "classes": (now_options.classes, then_options.classes),
    }
    if real:
        pairs["data"] = (now_options.data or "not given", then_options.data or "not given")
        pairs["loader workers"] = (now_options.workers, then_options.workers)
    return [f"{what}: {_shown(was)} then, {_shown(is_)} now" for what, (is_, was) in pairs.items() if is_ != was]


def _shown(value: object) -> str:
    return ", ".join(map(str, dict.fromkeys(value))) if isinstance(value, tuple) else str(value)


def _ratio(cell: Cell, other: Cell, *, per: int = 1) -> Estimate:
    a, b = cell.images_per_s, other.images_per_s
    assert a is not None and b is not None
    return Estimate(a.value / b.value / per, a.lo / b.hi / per, a.hi / b.lo / per)


def _widened(ratio: Estimate, between_runs: float) -> Estimate:
    """Widens the interval by the variation between runs, which is independent in the two runs."""
    factor = math.exp(_Z_95 * math.sqrt(2) * between_runs)
    return Estimate(ratio.value, ratio.lo / factor, ratio.hi * factor)


def _groups(cells: Sequence[Cell], key: Callable[[Cell], Key]) -> list[list[Cell]]:
    found: dict[Key, list[Cell]] = {}
    for cell in cells:
        found.setdefault(key(cell), []).append(cell)
    return list(found.values())
