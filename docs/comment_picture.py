"""Draws the picture of docs/how-to/ci.md: the comment of `rn50-advisor ci` on a job that came to read its loss in each step.

Both runs are made up (samples/gpus): a job on one H200, without and with the reading. The same runs give the same picture.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.chromium import photograph_page
from markdown_it import MarkdownIt
from samples.gpus.__main__ import build_driver, recorder
from samples.gpus.stories import healthy_facts

from rn50_advisor.advisor.model.errors import Regressed

CHANGE = Path(__file__).parents[1] / "samples" / "runs" / "item-each-step.tar.gz"
SIZE = 800, 1096  # pixels
_SERVICES = "GITHUB_", "GITLAB_", "CI_"  # variables of a CI that draws this
_STYLE = """
body { margin: 20px; color: #1f2328; font: 13px/1.5 sans-serif }
main { border: 1px solid #d1d9e0; border-radius: 6px; padding: 16px 16px 4px }
h3 { margin: 20px 0 12px; font-size: 16px } h4 { margin: 18px 0 10px; font-size: 14px }
main > h3:first-of-type { margin-top: 0 }
p, ul, summary { margin: 0 0 12px }
code, pre { font: 12px monospace; background: #eff1f3; border-radius: 6px }
code { padding: 3px 5px } pre { padding: 12px } pre code { padding: 0 }
table { border-collapse: collapse; margin-bottom: 12px } th, td { border: 1px solid #d1d9e0; padding: 4px 10px }
sub { font-size: 11px; vertical-align: baseline }
"""


def photograph_comment(picture: Path, browser: str) -> bool:
    """Writes the comment's Markdown, rendered, as PNG. Returns False if this machine has no C compiler, which makes the base run."""
    with tempfile.TemporaryDirectory() as temporary:
        comment = comment_of(Path(temporary))
        page = Path(temporary) / "comment.html"
        page.write_text(page_of(comment), encoding="utf-8")
        if comment:
            photograph_page(browser, page.as_uri(), picture, size=SIZE)
    return bool(comment)


def comment_of(folder: Path) -> str:
    """What `ci` writes when it compares the runs in `folder`; nothing if there is no C compiler."""
    if not build_driver(folder):
        return ""
    with recorder(folder) as record:
        base = record("1xH200", folder / "runs", facts=healthy_facts())
    own = {name: value for name, value in os.environ.items() if not name.startswith(_SERVICES)}
    command = [sys.executable, "-m", "rn50_advisor.advisor.cli", "ci", str(CHANGE), "--base", str(base)]
    command += ["--max-regression", "5", "--name", "training"]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    if done.returncode != Regressed.exit_code:
        raise SystemExit(f"`ci` ended with {done.returncode}: {done.stderr}")
    return (folder / "rn50-advisor-ci" / "comment.md").read_text(encoding="utf-8")


def page_of(comment: str) -> str:
    """The Markdown as a page by the rules of GitHub and GitLab, CommonMark with tables; what is folded there is open."""
    shown = MarkdownIt("commonmark").enable("table").render(comment).replace("<details>", "<details open>")
    return f"<!DOCTYPE html><meta charset=utf-8><title>comment</title><style>{_STYLE}</style><main>{shown}</main>\n"
