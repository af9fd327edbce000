"""Makes strings that come from the job harmless: names, paths and evidence may hold anything, and no format may obey it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Sequence

from rn50_advisor.advisor.model.visible_text import in_lines, on_one_line
from rn50_advisor.advisor.model.wording.quantities import shorten

LINE_LIMIT = 300
BLOCK_LIMIT = 4000
DIFF_LIMIT = 20_000
ARGV_LIMIT = 1000

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#&])")
_MARKDOWN_BLOCK_START = re.compile(r"^([-+=]+|\d+[.)])(?=\s|$)")
# What a service makes something of after Markdown, whatever is escaped: an issue's number, a bare host.
_REFERENCE = re.compile(r"(?<=#)(?=\d)|(?<=\bwww)(?=\.)", re.IGNORECASE)
_QUICK_ACTION = re.compile(r"^/(?=\w+(?:\s|$))")  # GitLab obeys a line `/close`
_BACKTICKS = re.compile(r"`+")


def one_line(text: object, limit: int = LINE_LIMIT) -> str:
    """Printable, on one line, at most `limit` characters."""
    # cut before and after: a hostile megabyte should not be scanned in full, and escapes take more room than they leave
    return shorten(" ".join(on_one_line(str(text)[: limit * 8]).split()), limit)


def diff(text: object) -> str:
    """A unified diff, printable; spaces and tabs are left as they are, for it must still apply."""
    return block(text, DIFF_LIMIT, tabs=True)


def block(text: object, limit: int = BLOCK_LIMIT, *, tabs: bool = False) -> str:
    """Printable, lines kept, tabs made spaces unless they shall stay, at most `limit` characters."""
    clean = str(text)[: limit * 8]
    for ending in ("\r\n", "\r", "\u2028", "\u2029"):
        clean = clean.replace(ending, "\n")
    clean = in_lines(clean)
    return shorten((clean if tabs else clean.expandtabs(4)).strip("\n"), limit)


def command_line(argv: Iterable[str], limit: int = ARGV_LIMIT) -> str:
    """The command as one would type it."""
    return one_line(shlex.join(argv), limit)


def markdown(text: object, limit: int = LINE_LIMIT) -> str:
    """Text that GitHub shows as it is: in a paragraph, a list, a heading or a table cell."""
    clean = _MARKDOWN.sub(r"\\\1", one_line(text, limit)).replace("\\&", "&amp;").replace("\\<", "&lt;")
    clean = _MARKDOWN_BLOCK_START.sub(lambda start: start[1][:-1] + "\\" + start[1][-1], clean)
    clean = _REFERENCE.sub("\u200b", _QUICK_ACTION.sub(r"\\/", clean))
    return clean.replace("@", "@\u200b").replace("://", ":\u200b//")  # neither a mention nor a link


def markdown_code(text: object, limit: int = LINE_LIMIT) -> str:
    """A code span, whatever backticks the text holds; not for table cells."""
    clean = one_line(text, limit)
    if not clean:
        return ""
    fence = _fence(clean, 1)
    pad = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def markdown_cell_code(text: object, limit: int = LINE_LIMIT) -> str:
    """A code span in a table cell: there, and only there, GitHub needs pipes escaped and undoes it inside code."""
    return markdown_code(text, limit).replace("|", "\\|")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Lines of a table whose cells are harmless already; `right`: the columns of numbers."""
    rule = ["---:" if place in right else "---" for place in range(len(head))]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]


def markdown_block(text: object, language: str = "") -> str:
    """A fenced code block that its content cannot close."""
    return _fenced(block(text), language)


def markdown_diff(text: object) -> str:
    return _fenced(diff(text), "diff")


def script_json(document: object) -> str:
    """JSON that can stand inside `<script type="application/json">`: nothing in it can end the element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _fenced(clean: str, language: str) -> str:
    fence = _fence(clean, 3)
    return f"{fence}{language}\n{clean}\n{fence}"


def _fence(text: str, least: int) -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)
