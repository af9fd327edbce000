"""Builds the documentation as a site in build/site: `make docs`. Pages and search need neither network nor server.

The pages are copied into build/pages at their paths in the clone, with all files that they link to, so that one link serves both a reader
of the clone and a reader of the site.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from docs import cause_charts

ROOT = Path(__file__).resolve().parents[1]
STAGED = Path("build/pages")  # mkdocs.yml names both
BUILT = Path("build/site")
_CHARTS = Path("docs/causes.md")
_SEARCH_WORKER = Path("docs/iframe-worker.js")  # of mkdocs.yml
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ELSEWHERE = ("http:", "https:", "mailto:", "#")


class BrokenLink(Exception):
    """A page links to what is no file of the clone."""


def links(text: str) -> Iterator[str]:
    """Yields the targets in a page that are files, without anchors. Code is no link."""
    for target in _LINK.findall(_CODE.sub("", text)):
        if not target.startswith(_ELSEWHERE):
            yield target.partition("#")[0]


def pages(root: Path) -> list[Path]:
    """Returns README, all of docs, and all files that these link to, within `root`. Raises BrokenLink."""
    home = root.resolve()
    waiting = [home / "README.md", *sorted((home / "docs").rglob("*.md"))]
    found: dict[Path, None] = {}
    while waiting:
        page = waiting.pop(0)
        if page in found:
            continue
        found[page] = None
        for link in links(page.read_text(encoding="utf-8")) if page.suffix == ".md" else ():
            target = (page.parent / link).resolve()
            if not (target.is_file() and target.is_relative_to(home)):
                raise BrokenLink(f"{page.relative_to(home)}: {link} is no file of the clone")
            waiting.append(target)
    return [page.relative_to(home) for page in found]


def stage(root: Path) -> None:
    shutil.rmtree(root / STAGED, ignore_errors=True)
    for page in pages(root):
        copy = root / STAGED / page
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / page, copy)
    (root / STAGED / _CHARTS).write_text(cause_charts.document(drawn=True), encoding="utf-8")
    shutil.copyfile(root / _SEARCH_WORKER, root / STAGED / _SEARCH_WORKER)


def build(root: Path) -> None:
    """Builds the site from `root` with its mkdocs.yml; a warning of mkdocs is an error. Raises CalledProcessError."""
    stage(root)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    subprocess.run(command, cwd=root, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)


def main() -> None:
    build(ROOT)
    sys.stdout.write(f"{BUILT / 'index.html'}\n")


if __name__ == "__main__":
    main()
