"""A result of `bench`, `compare`, `fleet`, `triage` or `try` before it is text, Markdown or HTML: plain values in reading order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rn50_advisor.advisor.model.wording import quantities as fmt

Format = Literal["text", "md", "html"]
Tone = Literal["", "good", "warn", "bad", "unclear", "dim"]
EVERYWHERE: tuple[Format, ...] = ("text", "md", "html")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """`label`: a word before it; `kind`: how loud it is."""

    text: str
    label: str = ""
    kind: Literal["lead", "note", "small"] = "note"
    tone: Tone = ""
    only: tuple[Format, ...] = EVERYWHERE


@dataclass(frozen=True, slots=True)
class Items:
    """`bullet` or `label` stands before each on a terminal, which shows `text_most` of them."""

    texts: Sequence[str]
    bullet: str = ""
    label: str = ""
    tone: Tone = "dim"
    most: int = 60
    text_most: int = 40
    more: str = "{} more"
    only: tuple[Format, ...] = EVERYWHERE


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and values that nobody needs to read."""

    pairs: Sequence[tuple[str, str]]
    only: tuple[Format, ...] = EVERYWHERE


@dataclass(frozen=True, slots=True)
class TableRow:
    """`below`: labelled lines under it, where a terminal is too narrow for all columns."""

    cells: Sequence[str]
    tone: Tone = ""
    below: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """`left`: columns that are no numbers. `lines`: how a terminal says the rows instead, where they are too long for columns."""

    head: Sequence[str]
    rows: Sequence[TableRow]
    left: tuple[int, ...] = (0,)
    names: int | None = None  # the column that names the row
    most: int = 60
    more: str = "{} more are in the JSON"
    cell_most: int = 300  # characters
    folded: str = ""  # what a page folds it under
    text_most: int = 40
    text_columns: int | None = None
    text_cell: int = 44
    text_fits: bool = False  # names are shortened until all fits the terminal
    lines: Sequence[tuple[str, str]] = ()
    only: tuple[Format, ...] = EVERYWHERE


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a bar chart; without `value` nothing is drawn."""

    label: str
    value_text: str
    basis: str
    value: float | None = None
    lo: float = 0.0
    hi: float = 0.0
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar chart, scaled to its largest bar."""

    rows: Sequence[Bar]
    unit: str
    only: tuple[Format, ...] = ("html",)


@dataclass(frozen=True, slots=True)
class PhaseBars:
    """Steps as stacked bars of their phases, drawn to one scale. `rows`: a name and its seconds by phase."""

    rows: Sequence[tuple[str, Mapping[str, float]]]
    only: tuple[Format, ...] = ("html",)


@dataclass(frozen=True, slots=True)
class Plot:
    """Points at equal distances, joined by a line. `format_value`: writes a value of the axis; `marked`: a point with a dashed line."""

    title: str
    values: Sequence[float]
    words: Sequence[str]
    format_value: Callable[[float], str]
    ticks: Sequence[str]
    axis: str
    marked: int | None = None
    only: tuple[Format, ...] = ("html",)


@dataclass(frozen=True, slots=True)
class CodeLines:
    """Lines to type or to apply, whole. `name`: what they are, on the button that copies them; a `diff` has its lines marked."""

    text: str
    name: Literal["change", "diff", "option"] = "change"
    only: tuple[Format, ...] = EVERYWHERE


@dataclass(frozen=True, slots=True)
class Section:
    """`titled`: the formats that need its title; `sentence`: a title that is read as one."""

    title: str
    blocks: Sequence[Block]
    aside: str = ""
    titled: tuple[Format, ...] = EVERYWHERE
    sentence: bool = False
    only: tuple[Format, ...] = EVERYWHERE


@dataclass(frozen=True, slots=True)
class Opening:
    """A verdict, and what belongs to it. `state`: glyph and word above the heading of a page."""

    title: str
    blocks: Sequence[Block] = ()
    tone: Tone = ""
    label: str = ""
    state: tuple[str, str] = ("", "")
    heading: str = ""
    only: tuple[Format, ...] = EVERYWHERE


Block = Paragraph | Items | Pairs | Table | Bars | PhaseBars | Plot | CodeLines | Section | Opening


@dataclass(frozen=True, slots=True)
class Document:
    """`kind` is the command's word for it; `embedded` is the JSON that a page holds."""

    kind: str
    title: str
    about: str
    blocks: Sequence[Block]
    schema: str
    embedded: Callable[[], dict[str, Any]]
    text_width: int = 100


MakeDocument = Callable[[Any], Document]


def shown(blocks: Iterable[Block], format: Format) -> list[Block]:
    """The blocks that this format has, without those in which nothing is left."""
    found = []
    for block in blocks:
        inside = replace(block, blocks=shown(block.blocks, format)) if isinstance(block, (Opening, Section)) else block
        if format in block.only and not _is_empty(inside):
            found.append(_filled(inside) if isinstance(inside, Table) else inside)
    return found


def has_code(blocks: Iterable[Block]) -> bool:
    """True if there are lines to copy."""
    return any(
        has_code(block.blocks) if isinstance(block, (Opening, Section)) else isinstance(block, CodeLines)
        for block in blocks
    )


def _is_empty(block: Block) -> bool:
    inside: Collection[object]
    match block:
        case Section():
            inside = block.blocks
        case Items():
            inside = block.texts
        case Pairs():
            inside = block.pairs
        case Table() | Bars():
            inside = block.rows
        case CodeLines():
            inside = block.text.strip()
        case PhaseBars():
            inside = [seconds for _, phases in block.rows for seconds in phases.values() if seconds > 0]
        case _:
            return False
    return not inside


def _filled(table: Table) -> Table:
    """Without columns that nobody filled."""
    places = [
        place for place in range(len(table.head)) if any(row.cells[place] not in ("", fmt.DASH) for row in table.rows)
    ] or [0]
    return replace(
        table,
        head=[table.head[place] for place in places],
        rows=[replace(row, cells=[row.cells[place] for place in places]) for row in table.rows],
        left=tuple(now for now, place in enumerate(places) if place in table.left),
        names=places.index(table.names) if table.names in places else None,
        text_columns=sum(place < table.text_columns for place in places) if table.text_columns else None,
    )
