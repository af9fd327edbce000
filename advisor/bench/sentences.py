"""The main results of a benchmark, in sentences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

from rn50_advisor.advisor.model.documents.benchmark import FULL_PRECISIONS, Benchmark, Cell, Setting
from rn50_advisor.advisor.model.wording.quantities import number

# Mixed precision speeds up training by 1.5 to 3.3 times on tensor cores; a gain below this needs an explanation.
AMP_GAIN_MIN = 1.3
# Eight GPUs of one machine reach 84 to 99 % in the reference table.
EFFICIENCY_MIN = 0.84
DATA_SHARE_MIN = 0.95  # two runs of one setting differ by up to this
_FASTER_SHARE_MIN = 0.03  # a layout that is faster by less is not worth a sentence


def sentences(made: Benchmark) -> tuple[str, ...]:
    """Returns the fastest setting first, then the gain of each dimension."""
    best = made.best
    if best is None:
        return ("nothing could be measured",)
    lines = [f"fastest: {_rate(best)} with {best.setting.words}"]
    for describe in (_mixed_precision, _layout, _batches, _devices, _real_data, _beside_the_reference):
        lines += describe(made)
    return tuple(lines)


def _mixed_precision(made: Benchmark) -> list[str]:
    """Compares each 16-bit format with full precision in otherwise equal settings; takes the pair with the fastest base.

    Also compares on real data, where an input-bound setting gains nothing.
    """
    lines = []
    for data, precision in itertools.product(("synthetic", "real"), ("bf16", "fp16")):
        pairs = [
            (base, cell)
            for cell in _measured(made)
            if cell.setting.precision == precision and cell.setting.data == data
            for full in FULL_PRECISIONS
            if (base := _like(made, cell, lambda s, full=full: replace(s, precision=full))) is not None  # type: ignore[misc]
        ]
        for base, cell in sorted(pairs, key=lambda pair: -pair[0].rate)[:1]:
            gain = cell.rate / base.rate
            only = "only " if gain < AMP_GAIN_MIN else ""
            text = f"{precision} brings {only}{gain:.2f}× over {base.setting.precision} at {_rate(cell)}"
            lines.append(f"{text} ({_short(cell.setting)})" + (_because(cell) if only else ""))
    return lines


def _layout(made: Benchmark) -> list[str]:
    lines = []
    for precision in dict.fromkeys(cell.setting.precision for cell in _measured(made)):
        for cell in _measured(made):
            if cell.setting.precision != precision or not cell.setting.channels_last:
                continue
            other = _like(made, cell, lambda s: replace(s, channels_last=False))
            if other is not None:
                gain = cell.rate / other.rate
                if abs(gain - 1) >= _FASTER_SHARE_MIN:
                    lines.append(f"channels-last is {gain:.2f}× channels-first in {precision} ({_short(cell.setting)})")
                break
    return lines


def _batches(made: Benchmark) -> list[str]:
    lines = []
    for sweep in made.sweeps:
        if len(sweep.batches) < 2 or sweep.knee is None:
            continue
        where = _short(Setting(sweep.precision, sweep.channels_last, 0, sweep.devices, sweep.data))
        top = sweep.batches[-1]
        if sweep.knee == top:
            text = f"images/s still grow at batch {top} ({where})"
        else:
            lost = 1 - sweep.images_per_s[-1] / max(sweep.images_per_s)
            text = f"a batch beyond {sweep.knee} gains less than 5 % ({where})"
            text += f", and {top} loses {100 * lost:.0f} %" if lost >= _FASTER_SHARE_MIN else ""
        lines.append(text + (f"; {sweep.oom_at} does not fit" if sweep.oom_at else ""))
    return lines


def _devices(made: Benchmark) -> list[str]:
    lines = []
    if not made.scaling and any(cell.setting.devices > 1 for cell in _measured(made)):
        lines.append("no scaling efficiency: no setting was also measured on a single device (--devices 1,…)")
    for line in made.scaling:
        most, efficiency = line.devices[-1], line.efficiency[-1].value
        setting = Setting(line.precision, line.channels_last, line.batch, most, line.data)
        cell = next(cell for cell in made.cells if cell.setting == setting)
        if made.machine.device == "cpu":  # the ranks share the cores of one rank, so no efficiency is expected
            lines.append(f"{most} ranks make {100 * most * efficiency:.0f} % of what one makes ({_short(setting)})")
            continue
        text = f"{most} devices reach {100 * efficiency:.0f} % of {most} single ones ({_short(setting)})"
        lines.append(text + (_because(cell) if efficiency < EFFICIENCY_MIN else ""))
    return lines


def _real_data(made: Benchmark) -> list[str]:
    lines = []
    for cell in _measured(made):
        if cell.setting.data != "real":
            continue
        synthetic = _like(made, cell, lambda s: replace(s, data="synthetic"))
        if synthetic is None:
            continue
        share = cell.rate / synthetic.rate
        text = f"real data reach {100 * share:.0f} % of synthetic ones: {_rate(cell)} ({_short(cell.setting)})"
        lines.append(text + (_because(cell) if share < DATA_SHARE_MIN else ""))
    return lines


def _beside_the_reference(made: Benchmark) -> list[str]:
    """Compares the best cell of each number of devices with published measurements."""
    lines = []
    for devices in dict.fromkeys(cell.setting.devices for cell in _measured(made)):
        referenced = [cell for cell in _measured(made) if cell.setting.devices == devices and cell.reference]
        cell = max(referenced, key=lambda one: one.rate, default=None)
        typical = next((r for r in cell.reference if r.tier == "typical"), None) if cell else None
        if cell is None or typical is None:
            continue
        span = (
            f"{number(round(typical.lo))} to {number(round(typical.hi))}"
            if typical.hi > typical.lo
            else number(typical.lo)
        )
        if cell.rate < typical.lo:
            place = f"{100 * (1 - cell.rate / typical.lo):.0f} % below what is typical"
        elif cell.rate > typical.hi:
            place = "above what is typical"
        else:
            place = "what is typical"
        lines.append(f"{_rate(cell)} is {place}: {span} ({_short(cell.setting)})")
    return lines


def _measured(made: Benchmark) -> list[Cell]:
    return [cell for cell in made.cells if cell.images_per_s]


def _like(made: Benchmark, cell: Cell, change: Callable[[Setting], Setting]) -> Cell | None:
    wanted = change(cell.setting)
    return next((other for other in _measured(made) if other.setting == wanted), None)


def _because(cell: Cell) -> str:
    verdict = cell.verdict
    if verdict is None or verdict.state != "bottleneck":
        return ""
    return f": {verdict.title} ({verdict.rule})"


def _rate(cell: Cell) -> str:
    return f"{number(float(f'{cell.rate:.4g}'))} images/s"


def _short(setting: Setting) -> str:
    parts: Iterable[str] = (
        setting.precision,
        "channels-last" if setting.channels_last else "channels-first",
        f"batch {setting.batch}" if setting.batch else "",
        f"{setting.devices} device{'s' if setting.devices > 1 else ''}",
        "real data" if setting.data == "real" else "",
    )
    return ", ".join(part for part in parts if part)
