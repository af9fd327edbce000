"""The job gets exactly what it would have got without us, and the caller gets exactly what the job gave."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from launcher_harness import PYTHON, killed_at_end, launch, launcher_argv, python, run_to_end
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import DEADLINE_S


@pytest.mark.parametrize("code", [0, 126, 255])
def test_exit_code_is_the_jobs(run_folder: Path, code: int) -> None:
    assert run_to_end(run_folder / "r", python(f"import sys; sys.exit({code})")).returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGPIPE])
def test_death_by_signal_is_ours_too(run_folder: Path, number: signal.Signals) -> None:
    code = f"import os, signal; signal.signal({int(number)}, 0) if {int(number)} != 9 else 0; os.kill(os.getpid(), {int(number)})"
    done = run_to_end(run_folder / "r", python(code))
    assert done.returncode == -number
    meta = read_recording(run_folder / "r").meta
    assert (meta.exit_code, meta.exit_signal) == (None, number)


def test_no_core_of_ours_beside_the_jobs(run_folder: Path, tmp_path: Path) -> None:
    job = python("import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()")
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    done = run_to_end(
        run_folder / "r", job, cwd=tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, unlimited)
    )
    assert done.returncode == -signal.SIGABRT
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("core")]


ARGUMENTS = [
    "",
    " ",
    "two words",
    "'single'",
    '"double"',
    "a\\b",
    "$HOME",
    "*",
    "--",
    "--name",
    "ünï→☃",
    "\udcff\udcfe",
    "\n",
    "-c",
]


def test_arguments_arrive_byte_for_byte(run_folder: Path) -> None:
    job = python("import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))", *ARGUMENTS)
    assert run_to_end(run_folder / "r", job).stdout.split(b"\0") == [os.fsencode(a) for a in ARGUMENTS]


def environment_of_job(run_folder: Path, given: dict[bytes, bytes]) -> dict[bytes, bytes]:
    job = ["/bin/cat", "/proc/self/environ"]
    out = run_to_end(run_folder / "r", job, env=given).stdout
    return dict(entry.split(b"=", 1) for entry in out.split(b"\0") if entry)


@pytest.mark.parametrize("locale", [{}, {b"LC_ALL": b"C"}, {b"LC_CTYPE": b"C.UTF-8"}, {b"LANG": b"C"}])
def test_environment_gains_exactly_two_variables(run_folder: Path, locale: dict[bytes, bytes]) -> None:
    given = {b"PATH": os.environb[b"PATH"], b"EMPTY": b"", b"ODD": b"a=b\xff c", **locale}
    seen = environment_of_job(run_folder, given)
    ring_folder = seen.pop(b"RN50_ADVISOR_DIR")
    path = seen.pop(b"PYTHONPATH")
    assert seen == given
    assert ring_folder and path.endswith(b"probes/rank/inject_unset")


@pytest.mark.parametrize("before", [b"", b"/a", b"/a:/b", b":/a", b"/a:"])
def test_the_users_pythonpath_follows_unchanged(run_folder: Path, before: bytes) -> None:
    path = environment_of_job(run_folder, {b"PATH": os.environb[b"PATH"], b"PYTHONPATH": before})[b"PYTHONPATH"]
    inject, colon, rest = path.partition(b":")
    assert inject.endswith(b"probes/rank/inject" if before else b"probes/rank/inject_unset")
    assert (colon, rest) == ((b":", before) if before else (b"", b""))


def test_working_directory_and_umask_are_kept(run_folder: Path, tmp_path: Path) -> None:
    job = python("import os; print(os.getcwd(), oct(os.umask(0)))")
    done = run_to_end(run_folder / "r", job, cwd=tmp_path, preexec_fn=lambda: os.umask(0o027) and None)
    assert done.stdout.decode().split() == [str(tmp_path), "0o27"]


def test_stdin_passes_through(run_folder: Path) -> None:
    job = python("import sys; sys.stdout.write(sys.stdin.read().upper())")
    with killed_at_end(launch(run_folder / "r", job, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as process:
        assert process.communicate(b"hello", DEADLINE_S)[0] == b"HELLO"


SHOW_DESCRIPTORS = """
import json, os
found = {}
for name in os.listdir('/proc/self/fd'):
    try:
        found[name] = os.readlink('/proc/self/fd/' + name)
    except OSError:
        pass
with open(os.environ['SEEN'], 'w') as file:
    json.dump(found, file)
"""


@pytest.mark.parametrize("closed", [(), (0,), (1,), (2,), (0, 1, 2)])
def test_descriptors_are_those_of_a_plain_exec(run_folder: Path, tmp_path: Path, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for descriptor in closed:
            os.close(descriptor)

    def seen_by(argv: list[str]) -> dict[str, str]:
        seen = tmp_path / "seen.json"
        subprocess.run(
            argv,
            env={**os.environ, "SEEN": str(seen)},
            preexec_fn=close,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[extra.fileno()],
            timeout=DEADLINE_S,
            check=True,
        )
        found: dict[str, str] = json.loads(seen.read_text())
        return {
            number: target for number, target in found.items() if "/proc/" not in target and "seen.json" not in target
        }

    job = python(SHOW_DESCRIPTORS)
    with (tmp_path / "extra").open("w") as extra:
        assert seen_by(launcher_argv(run_folder / "r", job)) == seen_by(job)


FORGOTTEN = """
import errno, os
fstat = os.fstat
def forgotten(descriptor):
    if descriptor == 2:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    return fstat(descriptor)
os.fstat = forgotten
"""


def test_a_stderr_whose_server_has_forgotten_it_is_no_reason_to_fail(run_folder: Path) -> None:
    done = run_to_end(run_folder / "r", python("raise SystemExit(5)"), prelude=FORGOTTEN)
    assert (done.returncode, done.stderr) == (5, b"")


SHOW_SIGNALS = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
SETUPS = {
    "as usual": "",
    "nohup": "trap '' HUP; ",
    "background of a script": "trap '' INT QUIT; ",
    "children ignored": "trap '' CHLD; ",
    "pipe ignored by a shell": "trap '' PIPE XFSZ; ",
    "many": "trap '' TERM USR1 USR2 TSTP TTIN TTOU WINCH; ",
}


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS.keys())
def test_signal_mask_and_dispositions_are_those_of_a_plain_exec(run_folder: Path, setup: str) -> None:
    def shown(argv: list[str]) -> bytes:
        # "; true": the shell stays our parent instead of becoming us
        return subprocess.run(
            ["bash", "-c", setup + '"$@"; true', "bash", *argv], capture_output=True, timeout=DEADLINE_S, check=True
        ).stdout

    plain = shown(SHOW_SIGNALS)
    assert plain.count(b"\n") == 3
    assert shown(launcher_argv(run_folder / "r", SHOW_SIGNALS)) == plain


def test_a_blocked_signal_stays_blocked_in_the_job(run_folder: Path) -> None:
    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

    shown = subprocess.run(SHOW_SIGNALS, capture_output=True, preexec_fn=block, check=True).stdout
    assert run_to_end(run_folder / "r", SHOW_SIGNALS, preexec_fn=block).stdout == shown


def test_process_group_and_session_are_ours(run_folder: Path) -> None:
    job = python("import os; print(os.getpgid(0), os.getsid(0))")
    with killed_at_end(launch(run_folder / "r", job, stdout=subprocess.PIPE, start_new_session=True)) as process:
        assert process.communicate(timeout=DEADLINE_S)[0].split() == [b"%d" % process.pid] * 2


def test_a_burst_on_stderr_arrives_whole(run_folder: Path) -> None:
    job = python("import os\nblock = bytes(range(256)) * 4096\nwhile block: block = block[os.write(2, block):]")
    assert run_to_end(run_folder / "r", job).stderr == bytes(range(256)) * 4096


def test_stdout_and_stderr_keep_their_order_in_one_pipe(run_folder: Path) -> None:
    job = python("import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)")
    with killed_at_end(launch(run_folder / "r", job, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)) as process:
        assert process.communicate(timeout=DEADLINE_S)[0].split() == [b"%d" % i for i in range(500)]


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_command_that_does_not_exist_is_127(run_folder: Path) -> None:
    done = run_to_end(run_folder / "r", ["no-such-command-here"])
    assert done.returncode == 127
    assert done.stderr.startswith(b"no-such-command-here: command not found")
    assert done.stderr.count(b"\n") == 1
    assert not (run_folder / "r").exists()


def test_a_missing_interpreter_is_named(run_folder: Path, tmp_path: Path) -> None:
    done = run_to_end(run_folder / "r", [str(script(tmp_path / "job", "#!/no/such/python\n"))])
    assert done.returncode == 127
    assert b"interpreter does not exist" in done.stderr
    assert b"#!/no/such/python" in done.stderr


@pytest.mark.parametrize("kind", ["file", "folder", "binary"])
def test_a_command_that_cannot_be_executed_is_126(run_folder: Path, tmp_path: Path, kind: str) -> None:
    job = tmp_path / "job"
    if kind == "folder":
        job.mkdir()
    elif kind == "binary":
        job.write_bytes(b"\x7fELF\0 for another world")
        job.chmod(0o755)
    else:
        script(job, "echo hi", 0o644)
    done = run_to_end(run_folder / "r", [str(job)])
    assert done.returncode == 126
    assert done.stderr.startswith(os.fsencode(job) + b": ")


def test_a_script_without_first_line_runs_in_a_shell(run_folder: Path, tmp_path: Path) -> None:
    job = script(tmp_path / "job", 'echo "got $1"; exit 5\n')
    done = run_to_end(run_folder / "r", [str(job), "x y"])
    assert (done.returncode, done.stdout) == (5, b"got x y\n")


def test_the_job_runs_although_the_run_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_to_end(tmp_path / "file" / "r", python("print('done')"))
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert done.stderr.startswith(b"rn50-advisor: the job runs unrecorded: ")
    assert done.stderr.count(b"\n") == 1


def test_the_job_runs_although_no_ring_folder_can_be_made(run_folder: Path) -> None:
    prelude = """
import pathlib, rn50_advisor.advisor.run.rings.agent_ring_folder as f
f.default_places = lambda: (pathlib.Path('/proc'),)
"""
    done = run_to_end(run_folder / "r", python("import os; print('RN50_ADVISOR_DIR' in os.environ)"), prelude=prelude)
    assert (done.returncode, done.stdout) == (0, b"False\n")
    assert b"without the recorder inside it" in done.stderr
    assert any(gap.metric == "steps" for gap in read_recording(run_folder / "r").gaps)


def test_arguments_that_leave_no_room_for_two_variables_still_run(run_folder: Path) -> None:
    prelude = """
import errno, rn50_advisor.advisor.run.launch.launcher as launcher
real = launcher.spawn
def spawn(argv, environment, restore):
    if b'RN50_ADVISOR_DIR' in environment:
        raise OSError(errno.E2BIG, 'Argument list too long')
    return real(argv, environment, restore)
launcher.spawn = spawn
"""
    done = run_to_end(run_folder / "r", python("print('done')"), prelude=prelude)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert b"leave no room" in done.stderr


def test_nothing_is_left_in_shared_memory(run_folder: Path) -> None:
    done = run_to_end(run_folder / "r", python("import os; print(os.environ['RN50_ADVISOR_DIR'])"))
    assert not Path(done.stdout.decode().strip()).exists()


def test_the_launcher_starts_the_job_before_it_imports_anything_heavy() -> None:
    heavy = "('numpy', 'torch', 'sqlite3', 'psutil')"
    code = f"import sys, rn50_advisor.advisor.run.launch.launcher; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([PYTHON, "-c", code], capture_output=True, check=True).stdout == b"[]\n"
