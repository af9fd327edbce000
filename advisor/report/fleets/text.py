"""The fleet as text for terminals, pipes and log files."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.ranked_fleet import Fleet
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.fleets import wording
from rn50_advisor.advisor.report.styled_lines import Line

MACHINES_SHOWN = 40  # the worst; all are in the other formats
FEW = 4  # machines of which all components fit on a screen
UNREAD_SHOWN = 5
_CELL = 40


def render(fleet: Fleet) -> str:
    return styled_lines.plain(document(fleet))


def document(fleet: Fleet) -> list[Line]:
    out: list[Line] = [*styled_lines.wrapped("", wording.title(fleet), "title", indent=0)]
    for machine in fleet.outliers[:MACHINES_SHOWN]:
        out += styled_lines.wrapped("▼ ", wording.outlier(machine), label_style="bad")
    for note in fleet.notes:
        out += styled_lines.wrapped("note  ", note, "dim")
    out += [[], *_machines(fleet)]
    if len(fleet.machines) <= FEW:
        out += _components(fleet)
    for unread in fleet.unread[:UNREAD_SHOWN]:
        out += styled_lines.wrapped("not read  ", f"{unread.file}: {unread.reason}", "warn")
    if len(fleet.unread) > UNREAD_SHOWN:
        out += styled_lines.wrapped("", f"{len(fleet.unread) - UNREAD_SHOWN} more could not be read", "dim")
    return out


def _machines(fleet: Fleet) -> list[Line]:
    shown = fleet.machines[:MACHINES_SHOWN]
    rows = [[inert_text.one_line(cell, _CELL) for cell in wording.machine_row(machine)] for machine in shown]
    out = styled_lines.table(list(wording.MACHINE_COLUMNS), rows)
    for line, machine in zip(out[1:], shown, strict=True):
        if machine.outlier:
            line[:] = [(text, "bad") for text, _ in line]
    hidden = len(fleet.machines) - len(shown)
    return [*out, *(styled_lines.wrapped("", f"{hidden} more, all nearer to the others", "dim") if hidden else [])]


def _components(fleet: Fleet) -> list[Line]:
    out: list[Line] = []
    for machine in fleet.machines:
        if machine.deviations:
            rows = [
                [inert_text.one_line(c, 2 * _CELL) for c in wording.deviation_row(one)] for one in machine.deviations
            ]
            out += [
                [],
                [(inert_text.one_line(machine.name), "title")],
                *styled_lines.table(list(wording.DEVIATION_COLUMNS), rows),
            ]
        for one in machine.differences:
            out += styled_lines.wrapped(f"{one.name}  ", f"{one.value}, of the others {one.usual}")
    return out
