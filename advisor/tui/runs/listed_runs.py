"""Rows of the runs list: what is stored of a run, as cells of a line, and which rows a filter keeps in which order."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.tui.styles.drawing import fit, line, muted, prose
from rn50_advisor.advisor.tui.styles.severity_styles import STATE

if TYPE_CHECKING:
    from rn50_advisor.advisor.store.run_rows import RunRow

_OTHER_STATES = {
    "recording": ("▶", "RECORDING", "$primary"),
    "not judged": ("–", "NOT JUDGED", "$foreground"),
    "unreadable": ("✖", "UNREADABLE", "$error"),
}
_STAMP_CHARS = len("20250101-000000-")
# Cells and their columns; the command gets what is left. Wide: from _WIDE_FROM columns.
_NARROW = {"run": 13, "age": 6, "verdict": 14, "gain": 6, "samples/s": 9, "ranks": 5, "duration": 8}
_WIDE = {**_NARROW, "run": 28, "age": 7, "verdict": 16}
_RIGHT = {"age", "gain", "samples/s", "ranks", "duration"}
_WIDE_FROM = 115
_MARK_CHARS = 2
ORDERS = ("age", "gain", "samples/s", "duration", "run")


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in the list. `ranks`: None where no process of a rank was seen."""

    row: RunRow
    command: str = ""
    ranks: int | None = None

    @property
    def folder(self) -> Path:
        return Path(self.row.path)

    @property
    def final(self) -> bool:
        """False if what is stored of the run may change."""
        return self.row.state not in ("recording", "not judged")


@dataclass(slots=True)
class ListState:
    """What the list shows and where the user is in it; outlives the screen while a run is open."""

    runs: dict[str, ListedRun] = field(default_factory=dict)  # by the run's folder
    needle: str = ""
    order: str = ORDERS[0]
    selected: str | None = None
    marked: set[str] = field(default_factory=set)

    def shown(self) -> list[ListedRun]:
        """Runs that the filter keeps, in the chosen order; those without the value come last."""
        return sorted((run for run in self.runs.values() if keeps_run(self.needle, run)), key=_KEYS[self.order])

    def chosen(self) -> list[ListedRun]:
        """The marked runs, oldest first; without a mark, the one under the cursor."""
        names = self.marked & self.runs.keys() or {self.selected} & self.runs.keys()
        return sorted((self.runs[name] for name in names if name), key=lambda run: run.row.started_unix_s or 0.0)


def _largest_first(value: float | None) -> float:
    return math.inf if value is None else -value


_KEYS: dict[str, Callable[[ListedRun], tuple[float, str]]] = {
    "age": lambda run: (_largest_first(run.row.started_unix_s), run.row.name),
    "gain": lambda run: (_largest_first(run.row.likely or (max(run.row.speedup) if run.row.speedup else None)), ""),
    "samples/s": lambda run: (_largest_first(run.row.samples_per_s), run.row.name),
    "duration": lambda run: (_largest_first(run.row.duration_s), run.row.name),
    "run": lambda run: (0.0, short_name(run.row.name)),
}


def listed(folder: Path) -> ListedRun:
    """Reads what is stored of a run: a few rows of its tables, no steps."""
    from rn50_advisor.advisor.store.run_access import open_database  # noqa: PLC0415 - the first frame should not wait
    from rn50_advisor.advisor.store.run_rows import row_of  # noqa: PLC0415
    from rn50_advisor.advisor.store.run_summary import meta_values  # noqa: PLC0415
    from rn50_advisor.advisor.store.schema import FILE_NAME  # noqa: PLC0415

    row = row_of(folder)
    try:
        with open_database(folder / FILE_NAME) as db:
            argv = meta_values(db, "argv").get("argv")
            (ranks,) = db.execute("SELECT COUNT(DISTINCT rank) FROM processes WHERE rank IS NOT NULL").fetchone()
    except NotARun:
        return ListedRun(row)
    words = [word for word in argv if isinstance(word, str)] if isinstance(argv, list) else []
    return ListedRun(row, shlex.join(words), ranks or None)


def short_name(name: str) -> str:
    """A run's name without the time of its start, if it has another."""
    head, tail = name[:_STAMP_CHARS], name[_STAMP_CHARS:]
    return tail if tail and head[8:9] == head[15:16] == "-" and head.replace("-", "").isdigit() else name


def short_command(command: str) -> str:
    """A command line without the interpreter and launchers in front of the script."""
    words = command.split(" ")
    script = next((i for i, word in enumerate(words) if word.endswith(".py")), 0)
    return " ".join([Path(words[script]).name, *words[script + 1 :]])


def keeps_run(needle: str, run: ListedRun) -> bool:
    """True if each word of the filter is in the run's name, command, state, rule or title."""
    text = f"{run.row.name} {run.command} {run.row.state} {run.row.rule or ''} {run.row.title}".lower()
    return all(word in text for word in needle.lower().split())


def state_of(run: ListedRun) -> tuple[str, str, str]:
    """Glyph, word and theme colour of the run's verdict or state."""
    return STATE.get(run.row.state) or _OTHER_STATES[run.row.state]


def widths(width: int) -> dict[str, int]:
    fixed = _WIDE if width >= _WIDE_FROM else _NARROW
    return {**fixed, "command": max(width - _MARK_CHARS - sum(fixed.values()) - len(fixed) - 1, 0)}


def head_line(width: int, order: str) -> Content:
    """The columns' names; a click on one orders by it."""
    parts: list[Content] = [Content(" " * _MARK_CHARS)]
    for name, cells in widths(width).items():
        text = fit(f"{name}{'▾' if name == order else ''}", cells, name in _RIGHT) + " "
        part = Content.from_markup(f"[@click=app.order_by('{name}')]{text}[/]") if name in ORDERS else Content(text)
        parts.append(part.stylize("bold" if name == order else "$foreground 75%"))
    return Content("").join(parts)


def run_line(run: ListedRun, *, width: int, now_unix_s: float, marked: bool) -> Content:
    row = run.row
    glyph, word, colour = state_of(run)
    gain = fmt.DASH
    if row.speedup is not None:
        best = row.likely if row.likely is not None else max(row.speedup)
        gain = ("" if row.likely is not None else "≤") + fmt.speedup(best, row.speedup)
    texts = {
        "run": short_name(row.name),
        "age": age(now_unix_s, row.started_unix_s),
        "gain": gain,
        "samples/s": fmt.rate(row.samples_per_s, ""),
        "ranks": fmt.DASH if run.ranks is None else str(run.ranks),
        "duration": fmt.duration(row.duration_s),
        "command": short_command(run.command),
    }
    parts: list[str | tuple[str, str] | Content] = [("● " if marked else "  ", "bold $text-primary")]
    for name, cells in widths(width).items():
        if name == "verdict":
            tone = colour.replace("$", "$text-") if colour != "$foreground" else colour
            style = f"bold {tone}" if run.row.state in STATE else tone
            parts.append((fit(f"{glyph} {row.rule or word.lower()}", cells), style))
        else:
            parts.append(fit(texts[name], cells, name in _RIGHT))
        parts.append(" ")
    return line(*parts)


def about_lines(run: ListedRun, width: int) -> list[Content]:
    """All that is stored of one run: verdict, gain, command and folder."""
    row = run.row
    glyph, word, colour = state_of(run)
    tone = "$background" if colour == "$foreground" else "auto"
    gain = f" · likely gain {fmt.speedup_range(row.speedup)}" if row.speedup is not None else ""
    chip = f" {glyph} {word} "
    title = prose(f"{row.rule or ''} {row.title}{gain}", width - len(chip) - 2, most=2)
    first, *more = title or [""]
    lines = [line((chip, f"bold {tone} on {colour}"), f" {first}"), *(line(f"  {text}") for text in more)]
    lines.append(line(muted("command  "), fit(run.command or fmt.DASH, max(width - 10, 0)).rstrip()))
    where = fmt.shorten_path(row.path, max(width - 24, 8))
    lines.append(line(muted("folder   "), f"{where} · {fmt.bytes_(row.size_bytes)}"))
    return lines


def age(now_unix_s: float, started_unix_s: float | None) -> str:
    if started_unix_s is None:
        return fmt.DASH
    past_s = now_unix_s - started_unix_s
    for unit_s, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if past_s >= unit_s:
            return f"{past_s // unit_s:.0f} {name}"
    return "now"
