"""Programs that the screen starts on request: an editor at a line, and a browser. The job never notices: they are no children of it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError

# How editors take a line, by the name of their program.
_PLUS_LINE = {
    "vi", "vim", "nvim", "view", "gvim", "nano", "pico", "emacs", "emacsclient", "hx", "helix", "micro", "kak", "joe", "jed", "mcedit",
    "ne", "mg", "zile", "gedit", "kate",
}  # fmt: skip
_GOTO_OPTION = {"code", "code-insiders", "code-server", "codium", "vscodium", "cursor", "windsurf", "positron"}
_WITH_COLON = {"subl", "sublime_text", "zed", "zeditor", "atom"}
_BROWSER_S = 10.0  # one that runs longer is taken to have opened
_OPEN = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


class NoProgram(AdvisorError):
    """There is no such program or file on this machine; the message goes to the screen."""


def editor_command(file: Path, line: int, environment: Mapping[str, str]) -> list[str]:
    """The command that opens `file` at `line` in $VISUAL, else $EDITOR. Raises NoProgram.

    An editor whose way of taking a line is not known gets the file alone.
    """
    set_to = environment.get("VISUAL", "").strip() or environment.get("EDITOR", "").strip()
    if not set_to:
        raise NoProgram("no editor is set", "set VISUAL or EDITOR, e.g. export EDITOR=vim")
    try:
        words = shlex.split(set_to)
    except ValueError as error:
        raise NoProgram(f"the editor {set_to!r} cannot be read as a command: {error}") from error
    if shutil.which(words[0], path=environment.get("PATH")) is None:
        raise NoProgram(f"the editor {words[0]} was not found", "VISUAL or EDITOR names it")
    if not file.is_file():
        raise NoProgram(f"{file} is not on this machine")
    name = Path(words[0]).name
    if name in _PLUS_LINE:
        return [*words, f"+{line}", str(file)]
    if name in _GOTO_OPTION:
        return [*words, "-g", f"{file}:{line}"]
    return [*words, f"{file}:{line}" if name in _WITH_COLON else str(file)]


def edit(command: list[str]) -> None:
    """Runs the editor to its end on this terminal. Raises NoProgram if it cannot start or fails.

    Ctrl-C in the editor is the editor's: here it would interrupt the job.
    """
    with _interrupts_ignored():
        try:
            code = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise NoProgram(f"{command[0]} cannot be started: {error.strerror or error}") from error
    if code:
        raise NoProgram(f"{command[0]} ended with exit code {code}")


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """By a handler: what is ignored would stay ignored in the editor."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def open_page(file: Path) -> bool:
    """Opens a page in the user's browser; False if this machine has none that could show it beside a terminal.

    In a process of its own, whose output cannot reach the screen. Browsers for terminals, which would draw over it, are left out: Python
    knows of them only with TERM. Takes seconds at most.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TERM"}
    command = [sys.executable, "-c", _OPEN, file.absolute().as_uri()]
    quiet = subprocess.DEVNULL
    try:
        opening = subprocess.Popen(
            command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
        return opening.wait(_BROWSER_S) == 0
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False
