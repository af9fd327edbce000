"""The list of runs on a real terminal, in 16 colours and in none, and completion in a real zsh and fish."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_process import TIMEOUT_S, environment
from store_rows import T0_NS
from written_runs import written_run

NAME = "20250101-000000-first"
COLOURS = re.compile(rb"\x1b\[([\d;]+)m")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    written_run(tmp_path / "runs" / NAME, argv=["python", "train.py"], ended_ns=T0_NS + 10**9)
    return tmp_path


class Terminal:
    """A program on a terminal of 24 lines of 80 characters."""

    def __init__(self, command: list[str], cwd: Path, **variables: str) -> None:
        self.screen, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        given = environment(**{"TERM": "xterm-256color", **variables})
        self.process = subprocess.Popen(
            command, cwd=cwd, env=given, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        )
        os.close(inner)
        self.shown = b""

    def read(self) -> bytes:
        """Output so far, after a short wait; the end of the other side is no error."""
        if not select.select([self.screen], [], [], 0.2)[0]:
            return b""
        try:
            return os.read(self.screen, 65536)
        except OSError:
            return b""

    def wait_for(self, text: bytes) -> bytes:
        """What was shown from now on until the text is there."""
        deadline, shown = time.monotonic() + TIMEOUT_S, b""
        while text not in shown and time.monotonic() < deadline:
            shown += self.read()
        self.shown += shown
        assert text in shown, shown[-2000:]
        return shown

    def type(self, keys: bytes) -> None:
        os.write(self.screen, keys)

    def end(self) -> int | None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self.shown += self.read()
        return self.process.poll()


@contextlib.contextmanager
def terminal(command: list[str], cwd: Path, **variables: str) -> Iterator[Terminal]:
    opened = Terminal(command, cwd, **variables)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait(TIMEOUT_S)
        os.close(opened.screen)


@pytest.mark.parametrize("arguments", [[], ["runs"]], ids=["alone", "runs"])
def test_the_list_opens_a_replay_and_comes_back(arguments: list[str], home: Path) -> None:
    with terminal([sys.executable, "-m", "rn50_advisor.advisor.cli", *arguments], home) as at:
        for back in (b"q", b"\x1b"):
            at.wait_for(b"not judged")
            at.type(b"\r")
            at.wait_for(b"replay")
            at.type(back)
        at.wait_for(b"not judged")
        at.type(b"q")
        assert at.end() == 0


@pytest.mark.parametrize("variables", [{"TERM": "xterm", "COLORTERM": ""}, {"NO_COLOR": "1"}], ids=["16", "none"])
def test_verdict_and_mark_are_words_and_glyphs_in_16_colours_and_in_none(variables: dict[str, str], home: Path) -> None:
    with terminal([sys.executable, "-m", "rn50_advisor.advisor.cli"], home, **variables) as at:
        at.wait_for(b"not judged")
        at.type(b" ")
        at.wait_for(b"1 marked")
        at.type(b"q")
        assert at.end() == 0
    assert "●".encode() in at.shown
    codes = {tuple(int(n) for n in found.split(b";") if n) for found in COLOURS.findall(at.shown)}
    if "NO_COLOR" not in variables:
        assert all(38 not in code and 48 not in code for code in codes), codes
    else:  # shades of grey: of the 256 colours 232 to 255, and black and white of the colour cube
        shades = {
            code[at + 2] for code in codes for at, n in enumerate(code[:-2]) if n in (38, 48) and code[at + 1] == 5
        }
        assert all(shade >= 232 or shade in (16, 59, 102, 145, 188, 231) for shade in shades), shades


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed: apt-get install zsh")
def test_zsh_completes_commands_options_and_runs_at_its_prompt(home: Path) -> None:
    (home / ".zshrc").write_text(
        f"path=({Path(sys.executable).parent} $path); autoload -U compinit && compinit -u\n"
        'eval "$(rn50-advisor completion zsh)"; PS1="ready> "\n'
    )
    with terminal(["zsh", "-d", "-i"], home, TERM="xterm", HOME=str(home), ZDOTDIR=str(home)) as at:
        at.wait_for(b"ready> ")
        for typed, completed in ((b"rn50-advisor rep\t", b"report"), (b"--form\t", b"--format"), (b"h\t", b"html")):
            at.type(typed)
            at.wait_for(completed)
        at.type(b"20\t")
        at.wait_for(NAME.encode())


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed: apt-get install fish")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("rn50-advisor rep", "report"),
        ("rn50-advisor report --format h", "html"),
        ("rn50-advisor report 20", NAME),
        ("rn50-advisor explain dat003", "DAT003"),
        ("rn50-advisor runs l", "list"),
    ],
)
def test_fish_completes_commands_options_runs_and_rules(line: str, completed: str, home: Path) -> None:
    path = Path(sys.executable).parent
    script = f"set -gx PATH {path} $PATH; rn50-advisor completion fish | source; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=home,
        env=environment(HOME=str(home)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert completed in [found.split("\t")[0] for found in done.stdout.splitlines()], done.stderr
