"""Chooses the settings to measure and their order: one dimension at a time around the fastest, or every combination."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from rn50_advisor.advisor.model.documents.benchmark import FULL_PRECISIONS, Cell, Data, Precision, Setting

Measure = Callable[[Setting], Cell]
FAILED_MAX = 2  # failed batches that end a sweep


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The settings to measure. `batch`: where precisions and layouts are compared; `batches`: the sweep (empty: none). All per device."""

    precisions: tuple[Precision, ...]
    layouts: tuple[bool, ...]  # channels-last or not
    batch: int
    batches: tuple[int, ...]
    devices: tuple[int, ...]
    data: tuple[Data, ...] = ("synthetic",)
    every_combination: bool = False


@dataclass(slots=True)
class Ledger:
    """Measures each setting once, even if several stages ask for it."""

    measure: Measure
    cells: dict[Setting, Cell] = field(default_factory=dict)

    def __call__(self, setting: Setting) -> Cell:
        if setting not in self.cells:
            self.cells[setting] = self.measure(setting)
        return self.cells[setting]

    def sweep(self, setting: Setting, batches: Iterable[int]) -> None:
        """Measures growing batches until one does not fit or two fail: batch 1 is too small for some models, and large ones fail slowly."""
        failed = 0
        for batch in sorted(batches):
            state = self(replace(setting, batch=batch)).state
            failed += state == "failed"
            if state == "oom" or failed == FAILED_MAX:
                break


def carry_out(plan: BenchPlan, measure: Measure) -> tuple[Cell, ...]:
    """Measures the plan and returns all cells in order of measurement, including failed ones."""
    ledger = Ledger(measure)
    (_every_combination if plan.every_combination else _one_at_a_time)(plan, ledger)
    return tuple(ledger.cells.values())


def doublings(first: int, last: int) -> tuple[int, ...]:
    """Returns `first` and its doublings up to `last`: 8, 16, 32, …"""
    found = []
    while first <= last:
        found.append(first)
        first *= 2
    return tuple(found)


def _every_combination(plan: BenchPlan, ledger: Ledger) -> None:
    batches = plan.batches or (plan.batch,)
    for data, devices, precision, layout in itertools.product(plan.data, plan.devices, plan.precisions, plan.layouts):
        ledger.sweep(Setting(precision, layout, 1, devices, data), batches)


def _one_at_a_time(plan: BenchPlan, ledger: Ledger) -> None:
    """Measures precisions and layouts at one batch, then batches of the fastest; at the knee of these, device counts and real data."""
    matrix, batch = _matrix(plan, ledger)
    best = _fastest(matrix)
    if best is None:
        return
    ledger.sweep(best.setting, plan.batches)
    swept = [cell for cell in ledger.cells.values() if replace(cell.setting, batch=1) == replace(best.setting, batch=1)]
    paying = knee([(cell.setting.batch, cell.rate) for cell in swept if cell.images_per_s]) or batch
    for devices in plan.devices[1:]:
        for precision in plan.precisions:
            best_here = _fastest(cell for cell in matrix if cell.setting.precision == precision)
            if best_here is not None:
                ledger(replace(best_here.setting, batch=paying))  # on one device, to compare with
                ledger(replace(best_here.setting, batch=paying, devices=devices))
    if "real" in plan.data:
        _real_data(plan, ledger, matrix, replace(best.setting, batch=paying))


def _real_data(plan: BenchPlan, ledger: Ledger, matrix: Iterable[Cell], fastest: Setting) -> None:
    """Measures real beside synthetic data on one device and on all; on one device also the other precision, for the gain of 16 bits."""
    ledger(fastest)
    if not ledger(replace(fastest, data="real")).images_per_s:
        return  # if real data fail here, they would fail in the other settings
    full, layout = fastest.precision in FULL_PRECISIONS, fastest.channels_last
    others = (
        c for c in matrix if (c.setting.precision in FULL_PRECISIONS) != full and c.setting.channels_last == layout
    )
    if (rival := _fastest(others)) is not None:
        ledger(replace(rival.setting, batch=fastest.batch, data="real"))
    ledger(replace(fastest, devices=plan.devices[-1]))
    ledger(replace(fastest, devices=plan.devices[-1], data="real"))


def _matrix(plan: BenchPlan, ledger: Ledger) -> tuple[list[Cell], int]:
    """Measures every precision and layout at one batch; if one does not fit, all again at half of it, so that they are comparable."""
    batch = plan.batch
    while True:
        cells: list[Cell] = []
        for precision, layout in itertools.product(plan.precisions, plan.layouts):
            cell = ledger(Setting(precision, layout, batch, plan.devices[0]))
            if cell.state == "oom" and batch > 1:
                break
            cells.append(cell)
        else:
            return cells, batch
        batch //= 2


def _fastest(cells: Iterable[Cell]) -> Cell | None:
    return max((cell for cell in cells if cell.images_per_s), key=lambda cell: cell.rate, default=None)


# The knee is the smallest batch whose rate is within this share of the best one.
GAIN_MIN = 0.05


def knee(points: Iterable[tuple[int, float]]) -> int | None:
    """Returns the smallest batch within 5 % of the best rate, beyond which more memory gains nothing. None without points."""
    known = sorted(points)
    if not known:
        return None
    best = max(rate for _, rate in known)
    return next(batch for batch, rate in known if rate >= (1 - GAIN_MIN) * best)
