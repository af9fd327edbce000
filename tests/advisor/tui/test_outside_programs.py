"""The editor gets the file and its line in its own way; a browser is opened where there is one; the rest is told."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from rn50_advisor.advisor.tui.outside_programs import NoProgram, edit, editor_command, open_page


def program(folder: Path, name: str, script: str = "exit 0") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "a page.py"
    file.write_text("x = 1\n")
    return file


@pytest.mark.parametrize(
    ("editor", "arguments"),
    [
        ("vim", ["+7", "{file}"]),
        ("nano -w", ["-w", "+7", "{file}"]),
        ("emacs", ["+7", "{file}"]),
        ("hx", ["+7", "{file}"]),
        ("code --wait", ["--wait", "-g", "{file}:7"]),
        ("subl", ["{file}:7"]),
        ("some-editor", ["{file}"]),
    ],
)
def test_each_editor_is_told_the_line_in_its_own_way(
    editor: str, arguments: list[str], page: Path, tmp_path: Path
) -> None:
    program(tmp_path, editor.split(maxsplit=1)[0])
    command = editor_command(page, 7, {"EDITOR": editor, "PATH": str(tmp_path)})
    assert command == [editor.split(maxsplit=1)[0], *(argument.format(file=page) for argument in arguments)]


def test_visual_comes_before_editor(page: Path, tmp_path: Path) -> None:
    program(tmp_path, "vim")
    environment = {"VISUAL": "vim", "EDITOR": "never", "PATH": str(tmp_path)}
    assert editor_command(page, 1, environment)[0] == "vim"
    assert editor_command(page, 1, {**environment, "VISUAL": " ", "EDITOR": "vim"})[0] == "vim"


@pytest.mark.parametrize(
    ("editor", "file", "said"),
    [
        ("", "a page.py", "no editor is set"),
        ("no-such-editor", "a page.py", "no-such-editor was not found"),
        ("vim 'x", "a page.py", "cannot be read as a command"),
        ("vim", "gone.py", "gone.py is not on this machine"),
        ("vim", ".", "is not on this machine"),
    ],
)
def test_what_is_missing_is_named(editor: str, file: str, said: str, page: Path, tmp_path: Path) -> None:
    program(tmp_path, "vim")
    with pytest.raises(NoProgram, match=said):
        editor_command(tmp_path / file, 7, {"EDITOR": editor, "PATH": str(tmp_path)})


def test_an_editor_runs_to_its_end_and_its_failure_is_told(tmp_path: Path) -> None:
    edit([str(program(tmp_path, "good", f"echo done > '{tmp_path}/made'"))])
    assert (tmp_path / "made").exists()
    with pytest.raises(NoProgram, match="exit code 3"):
        edit([str(program(tmp_path, "bad", "exit 3"))])
    with pytest.raises(NoProgram, match="cannot be started"):
        edit([str(tmp_path / "nothing")])


def test_ctrl_c_in_the_editor_is_the_editors_and_not_ours(tmp_path: Path) -> None:
    interrupted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    try:
        edit([str(program(tmp_path, "editor", f"kill -INT {os.getpid()}"))])
        assert interrupted == []
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted == [signal.SIGINT], "afterwards it is ours again"
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_page_is_opened_by_the_users_browser_without_a_terminal(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = program(tmp_path, "browser", f"echo \"$1 TERM=$TERM\" > '{tmp_path}/asked'; echo noise")
    monkeypatch.setenv("BROWSER", str(browser))
    monkeypatch.setenv("TERM", "xterm")
    assert open_page(page)
    assert (tmp_path / "asked").read_text() == f"{page.as_uri()} TERM=\n"


def test_a_machine_without_a_browser_has_none_even_with_one_for_terminals(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "lynx")
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    assert not open_page(page)
