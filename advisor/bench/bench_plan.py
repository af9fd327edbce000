"""Which settings are measured, and in what order: one dimension at a time around the fastest, or every combination."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from rn50_advisor.advisor.model.documents.benchmark import FULL_PRECISIONS, Cell, Data, Precision, Setting

Measure = Callable[[Setting], Cell]
FAILED_MAX = 2  # batches of a sweep


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """`batch` is where precisions and layouts are compared, `batches` the sweep (empty: none). All batches are of one device."""

    precisions: tuple[Precision, ...]
    layouts: tuple[bool, ...]  # channels-last or not
    batch: int
    batches: tuple[int, ...]
    devices: tuple[int, ...]
    data: tuple[Data, ...] = ("synthetic",)
    every_combination: bool = False


@dataclass(slots=True)
class Ledger:
    """Measures each setting once, however many stages ask for it."""

    measure: Measure
    cells: dict[Setting, Cell] = field(default_factory=dict)

    def __call__(self, setting: Setting) -> Cell:
        if setting not in self.cells:
            self.cells[setting] = self.measure(setting)
        return self.cells[setting]

    def sweep(self, setting: Setting, batches: Iterable[int]) -> None:
        """Growing batches until one does not fit or two fail: one is too small for some models, larger ones take longer to fail."""
        failed = 0
        for batch in sorted(batches):
            state = self(replace(setting, batch=batch)).state
            failed += state == "failed"
            if state == "oom" or failed == FAILED_MAX:
                break


def carry_out(plan: BenchPlan, measure: Measure) -> tuple[Cell, ...]:
    """All cells in the order in which they were measured. A setting that fails is a cell like any other."""
    ledger = Ledger(measure)
    (_every_combination if plan.every_combination else _one_at_a_time)(plan, ledger)
    return tuple(ledger.cells.values())


def doublings(first: int, last: int) -> tuple[int, ...]:
    """8, 16, 32, … up to the last."""
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
    """Precisions and layouts at one batch, batches of the fastest, devices at the batch that paid, real data there."""
    matrix, batch = _matrix(plan, ledger)
    best = _fastest(matrix)
    if best is None:
        return
    ledger.sweep(best.setting, plan.batches)
    swept = [cell for cell in ledger.cells.values() if replace(cell.setting, batch=1) == replace(best.setting, batch=1)]
    paying = knee([(cell.setting.batch, cell.rate) for cell in swept if cell.images_per_s]) or batch
    for devices in plan.devices[1:]:
        for precision in plan.precisions:
            mine = _fastest(cell for cell in matrix if cell.setting.precision == precision)
            if mine is not None:
                ledger(replace(mine.setting, batch=paying))  # on one device, to compare with
                ledger(replace(mine.setting, batch=paying, devices=devices))
    if "real" in plan.data:
        _real_data(plan, ledger, matrix, replace(best.setting, batch=paying))


def _real_data(plan: BenchPlan, ledger: Ledger, matrix: Iterable[Cell], fastest: Setting) -> None:
    """Beside synthetic ones on one device and on all; on one, full precision beside 16 bits, for what these still bring there."""
    ledger(fastest)
    if not ledger(replace(fastest, data="real")).images_per_s:
        return  # who cannot be fed is not asked again
    full, layout = fastest.precision in FULL_PRECISIONS, fastest.channels_last
    others = (
        c for c in matrix if (c.setting.precision in FULL_PRECISIONS) != full and c.setting.channels_last == layout
    )
    if (rival := _fastest(others)) is not None:
        ledger(replace(rival.setting, batch=fastest.batch, data="real"))
    ledger(replace(fastest, devices=plan.devices[-1]))
    ledger(replace(fastest, devices=plan.devices[-1], data="real"))


def _matrix(plan: BenchPlan, ledger: Ledger) -> tuple[list[Cell], int]:
    """Every precision and layout at one batch; at half of it where one does not fit, so that all are compared alike."""
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


# Where doubling a batch brings less than this, it is past the knee.
GAIN_MIN = 0.05


def knee(points: Iterable[tuple[int, float]]) -> int | None:
    """The smallest batch within 5 % of the best one: more memory buys nothing there. None without points."""
    known = sorted(points)
    if not known:
        return None
    best = max(rate for _, rate in known)
    return next(batch for batch, rate in known if rate >= (1 - GAIN_MIN) * best)
