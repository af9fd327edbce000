"""A unified diff that `patch` and `git apply` take, from two texts of one file."""

from __future__ import annotations

import difflib
from pathlib import PurePosixPath

MASKED = "***"  # what stands where a secret was: such lines are not those of the file
_CONTEXT_LINES = 3


def unified(before: str, after: str, name: str) -> str | None:
    """None where nothing differs, or where a line that differs is masked."""
    old, new = _lines(before), _lines(after)
    for context in range(_CONTEXT_LINES, -1, -1):
        made = list(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=context, lineterm="\n"))
        body = made[2:]
        if not body or any(MASKED in line for line in body if line[0] in "+-"):
            return None
        if not any(MASKED in line for line in body):
            return "".join([*made[:2], *(_ended(line) for line in body)])
    return None


def shown_name(path: str, folder: str) -> str:
    """Relative to the folder the job was started in, where the file lies in it; else the whole path without its root."""
    whole = PurePosixPath(path)
    return str(whole.relative_to(folder)) if folder and whole.is_relative_to(folder) else path.lstrip("/")


def _lines(text: str) -> list[str]:
    """With their ends. Not `splitlines`, which breaks at form feeds and separators too."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
