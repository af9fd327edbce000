"""A job is started as exec would have started it, or one line says why it cannot be."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.errors import CommandNotExecutable, CommandNotFound
from rn50_advisor.advisor.run.launch.spawn import spawn

PATH = {b"PATH": b"/usr/bin:/bin"}


def nothing() -> None:
    """A job that has no signals to restore."""


def script(folder: Path, text: bytes, mode: int = 0o755) -> str:
    file = folder / "train"
    file.write_bytes(text)
    file.chmod(mode)
    return str(file)


def test_the_job_gets_its_arguments_its_environment_and_what_is_restored_before_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = ["sh", "-c", 'printf "%s|%s|%s" "$0" "$KEY" "$(pwd)" > "$OUT"', "a b"]
    environment = {**PATH, b"KEY": b"\xff", b"OUT": os.fsencode(out)}
    job = spawn(argv, environment, lambda: os.chdir("/"))
    assert job.wait(30) == 0
    assert out.read_bytes() == b"a b|\xff|/"


def test_a_script_without_a_first_line_is_run_by_the_shell(tmp_path: Path) -> None:
    assert spawn([script(tmp_path, b"exit $1\n"), "7"], PATH, nothing).wait(30) == 7


def test_an_open_file_of_ours_that_is_inheritable_reaches_the_job() -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    assert spawn(["sh", "-c", f"echo written > /proc/self/fd/{write}"], PATH, nothing).wait(30) == 0
    os.close(write)
    assert os.read(read, 100) == b"written\n"
    os.close(read)


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        ("no-such-command-anywhere", "no-such-command-anywhere: command not found", "is the right environment active?"),
        ("/nowhere/train", "'/nowhere/train': no such file", ""),
        ("", "'': no such file", ""),
    ],
)
def test_what_is_not_there_is_not_found(command: str, message: str, hint: str) -> None:
    with pytest.raises(CommandNotFound) as caught:
        spawn([command], PATH, nothing)
    assert caught.value.message == message
    assert caught.value.hint.startswith(hint) and bool(caught.value.hint) == bool(hint)


def test_what_was_meant_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "bin" / "torchrun"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "start").write_text("")
    (tmp_path / "bin" / "torchrum").mkdir()
    wanted = {
        "torchrnu": "did you mean torchrun?",
        "torchrun train.py --epochs 3": "leave out the quotes around torchrun train.py --epochs 3",
        "train.py": "did you mean python train.py?",
        "start": "did you mean ./start?",
        "./trian.py": "did you mean ./train.py?",
        "bin/torchrn": "did you mean bin/torchrun?",
        "frobnicate": "is the right environment active?",
    }
    for command, hint in wanted.items():
        with pytest.raises(CommandNotFound) as caught:
            spawn([command], {b"PATH": os.fsencode(program.parent) + b":/nowhere"}, nothing)
        assert hint in caught.value.hint, command
    with pytest.raises(CommandNotExecutable) as refused:
        spawn(["./train.py"], PATH, nothing)
    assert refused.value.hint.endswith(": python ./train.py")


def test_a_script_whose_interpreter_is_gone_says_which_it_was(tmp_path: Path) -> None:
    file = script(tmp_path, b"#!/nowhere/python -u\n")
    with pytest.raises(CommandNotFound) as caught:
        spawn([file], PATH, nothing)
    assert caught.value.message == f"{file}: its interpreter does not exist"
    assert caught.value.hint == "its first line says #!/nowhere/python -u"


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    cases = [
        (str(folder), "is a directory", ""),
        (script(tmp_path, b"import torch\n", 0o644), "permission denied", f"chmod +x {tmp_path}/train"),
    ]
    for command, reason, hint in cases:
        with pytest.raises(CommandNotExecutable) as caught:
            spawn([command], PATH, nothing)
        assert caught.value.message == f"{command}: {reason}"
        assert caught.value.hint.startswith(hint)
    with pytest.raises(CommandNotExecutable, match="is not a program for this machine"):
        spawn([script(tmp_path, b"\x7fELF\0\0\0no program")], PATH, nothing)


def test_a_command_on_the_path_that_may_not_be_run_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    script(tmp_path, b"exit 0\n", 0o644)
    with pytest.raises(CommandNotExecutable, match="train: permission denied"):
        spawn(["train"], {b"PATH": os.fsencode(tmp_path)}, nothing)


def test_arguments_that_are_too_long_are_not_the_commands_fault() -> None:
    with pytest.raises(OSError) as caught:
        spawn(["true", "x" * (1 << 20)], PATH, nothing)
    assert caught.value.errno == errno.E2BIG


def test_a_closed_standard_stream_is_nobody_elses_number_and_stays_closed_for_the_job() -> None:
    code = (
        "import os, subprocess\n"
        "from rn50_advisor.advisor.run.launch.spawn import guard_standard_descriptors as guard\n"
        "guard()\n"
        "print(os.open(os.devnull, os.O_RDONLY) > 2, flush=True)\n"
        "print(subprocess.run(['test', '-e', '/proc/self/fd/0'], close_fds=False).returncode)\n"
    )
    command = ["sh", "-c", 'exec "$0" -c "$1" <&-', sys.executable, code]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == ["True", "1"]
