"""Real jobs in their containment: they work as usual, and leave no trace in the user's files, however they end."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from holding import ORDINARY_UID, SAVING_JOB, Places, give_to, places, python_of, start, way
from launcher_harness import run_to_end
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.trials.containment import Containment, Mode
from rn50_advisor.advisor.trials.inside.contained import NOT_CONTAINED
from waiting import DEADLINE_S, wait_for

MODES: tuple[Mode, ...] = ("overlay", "landlock")
USERS = [os.geteuid()] if os.geteuid() else [0, ORDINARY_UID]


@contextmanager
def contained(mode: Mode, uid: int, memory_bytes: int | None = None) -> Iterator[tuple[Containment, Places]]:
    python_of(uid)
    with (
        places(uid) as made,
        Containment(way(mode, made.base, memory_bytes, uid=uid), wanted=[str(made.home)]) as containment,
    ):
        if uid != os.geteuid():
            give_to(containment, uid)
        yield containment, made


def saving(made: Places, steps: int, code: int = 0) -> list[str]:
    return [
        "python3",
        "-c",
        SAVING_JOB,
        json.dumps(["."] + [str(place) for place in made.all()] + ["/tmp"]),
        str(steps),
        str(code),
    ]


def job_of(containment: Containment, made: Places, argv: list[str], uid: int) -> subprocess.Popen[bytes]:
    argv = [python_of(uid), *argv[1:]]
    return start(containment, argv, uid=uid, cwd=made.work, environment={"HOME": str(made.home)})


def first_line(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read().decode()
    heard: dict[str, object] = json.loads(line)
    return heard


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ending", ["of itself", "by SIGTERM", "by end_tree"])
def test_a_job_that_saves_at_every_occasion_leaves_all_folders_as_they_were(mode: Mode, uid: int, ending: str) -> None:
    with contained(mode, uid) as (containment, made):
        before = made.snapshot()
        steps = 3 if ending == "of itself" else 100_000
        with job_of(containment, made, saving(made, steps, code=7), uid) as process:
            heard = first_line(process)
            assert heard["pid"] == process.pid
            assert heard["uid"] == uid
            assert heard["refused"] == ([] if mode == "overlay" else [errno.EACCES])
            if ending == "by SIGTERM":
                process.send_signal(signal.SIGTERM)
            elif ending == "by end_tree":
                assert containment.end(process.pid) == []
            process.communicate(timeout=DEADLINE_S)
        assert process.returncode == (-signal.SIGKILL if ending == "by end_tree" else 7)
        assert made.snapshot() == before
        assert not list(Path("/tmp").glob("step-0"))
        folder = containment.folder
    assert not folder.exists()


@pytest.mark.parametrize("uid", USERS)
def test_what_a_job_wrote_is_not_there_when_it_starts_again(uid: int) -> None:
    with contained("overlay", uid) as (containment, made):
        argv = ["python3", "-c", "import os; print(os.path.exists('checkpoint')); open('checkpoint', 'w').close()"]
        for _ in range(2):
            with job_of(containment, made, argv, uid) as process:
                out, err = process.communicate(timeout=DEADLINE_S)
            assert out == b"False\n", err


def test_files_go_to_memory_where_that_is_the_way() -> None:
    with contained("overlay", os.geteuid(), memory_bytes=64 << 20) as (containment, made):
        before = made.snapshot()
        with job_of(containment, made, saving(made, 3), os.geteuid()) as process:
            assert first_line(process)["refused"] == []
            assert process.wait(DEADLINE_S) == 0
        assert made.snapshot() == before
        assert not list(containment.folder.glob("*/layers/*"))


ESCAPES = r"""
import ctypes, mmap, os, shutil, socket, sqlite3, sys, tempfile
home, work, output, scratch = sys.argv[1:]
def attempt(name, action):
    try:
        action()
        print(name, "done")
    except Exception as error:
        print(name, type(error).__name__)
def through_link():
    open(os.path.join(work, "link", "old.bin"), "w").write("x")
def hard_link():
    os.link(os.path.join(output, "old.bin"), os.path.join(work, "hard"))
    open(os.path.join(work, "hard"), "w").write("x")
def move_across():
    shutil.move(os.path.join(output, "below"), os.path.join(work, "moved"))
def mapped():
    with open(os.path.join(home, "old.bin"), "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:2] = b"zz"
        memory.flush()
def unnamed():
    file = os.open(home, os.O_TMPFILE | os.O_RDWR)
    os.write(file, b"x")
    os.link("/proc/self/fd/%d" % file, os.path.join(home, "named"), follow_symlinks=True)
def database():
    with sqlite3.connect(os.path.join(output, "rows.sqlite")) as rows:
        rows.execute("PRAGMA journal_mode=WAL")
        rows.execute("CREATE TABLE t (i)")
        rows.execute("INSERT INTO t VALUES (1)")
def truncated():
    os.truncate(os.path.join(home, "old.bin"), 1)
def opened_truncated():
    os.close(os.open(os.path.join(home, "old.bin"), os.O_RDONLY | os.O_TRUNC))
def listening():
    socket.socket(socket.AF_UNIX).bind(os.path.join(work, "socket"))
def fifo():
    os.mkfifo(os.path.join(work, "fifo"))
def own_root():
    open("/proc/self/root" + os.path.join(home, "old.bin"), "w").write("x")
def own_cwd():
    open("/proc/self/cwd/old.bin", "w").write("x")
def mounted():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(output.encode(), scratch.encode(), None, 4096, None):
        raise OSError(ctypes.get_errno(), "mount")
    open(os.path.join(scratch, "old.bin"), "w").write("x")
def removed():
    shutil.rmtree(output)
for name, action in list(globals().items()):
    if callable(action) and name != "attempt" and getattr(action, "__module__", "") == "__main__":
        attempt(name, action)
"""


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("mode", MODES)
def test_no_way_around_leads_to_the_users_files(mode: Mode, uid: int) -> None:
    with contained(mode, uid) as (containment, made):
        before = made.snapshot()
        scratch = (made.scratch / "old.bin").read_bytes()
        folders = [str(folder) for folder in (made.home, made.work, made.output, made.scratch)]
        with job_of(containment, made, ["python3", "-c", ESCAPES, *folders], uid) as process:
            out, err = process.communicate(timeout=DEADLINE_S)
        outcome = dict(line.split() for line in out.decode().splitlines())
        assert len(outcome) == 14, err.decode()
        if mode == "overlay":
            assert {name for name, result in outcome.items() if result != "done"} <= {
                "mounted",
                "unnamed",
                "move_across",
            }
        else:
            assert set(outcome.values()) <= {"PermissionError", "OSError", "OperationalError"}
        assert made.snapshot() == before
        assert (made.scratch / "old.bin").read_bytes() == scratch


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("mode", MODES)
def test_devices_shared_memory_and_services_can_be_used(mode: Mode, uid: int) -> None:
    import socket

    code = (
        "import os, socket, sys\n"
        "from multiprocessing import shared_memory\n"
        "memory = shared_memory.SharedMemory(create=True, size=1 << 20)\n"
        "memory.buf[:2] = b'ok'\n"
        "memory.close(); memory.unlink()\n"
        "open('/dev/null', 'w').write('x')\n"
        "assert os.read(os.open('/dev/urandom', os.O_RDONLY), 4)\n"
        "about = os.statvfs('/dev/shm')\n"
        "client = socket.socket(socket.AF_UNIX)\n"
        "client.connect(sys.argv[1])\n"
        "print(about.f_blocks * about.f_frsize)\n"
    )
    with contained(mode, uid) as (containment, made), socket.socket(socket.AF_UNIX) as service:
        service.bind(str(made.base / "service"))
        (made.base / "service").chmod(0o777)
        service.listen()
        with job_of(containment, made, ["python3", "-c", code, str(made.base / "service")], uid) as process:
            out, err = process.communicate(timeout=DEADLINE_S)
        about = os.statvfs("/dev/shm")
        assert int(out or 0) == about.f_blocks * about.f_frsize, err.decode()


@pytest.mark.parametrize("mode", MODES)
def test_what_is_to_be_kept_is_written_for_real(mode: Mode) -> None:
    with places(os.geteuid()) as made:
        kept, ring = made.output / "below", made.scratch
        with Containment(way(mode, made.base), keep=[kept]) as containment:
            argv = [
                sys.executable,
                "-c",
                "import sys; [open(p + '/kept', 'w').close() for p in sys.argv[1:]]",
                str(kept),
                str(ring),
            ]
            variables = {"RN50_ADVISOR_DIR": str(ring)}
            with start(containment, argv, uid=os.geteuid(), cwd=made.work, environment=variables) as process:
                assert process.wait(DEADLINE_S) == 0
        assert (kept / "kept").exists() and (ring / "kept").exists()


@pytest.mark.parametrize("mode", MODES)
def test_the_job_finds_its_streams_folder_environment_and_signals_as_without(mode: Mode) -> None:
    code = (
        "import json, os, signal, sys; print(json.dumps({'stdin': sys.stdin.read(), 'cwd': os.getcwd(), 'pwd': os.environ['PWD'],"
        " 'path': os.environ.get('PYTHONPATH'), 'argv': sys.argv[1:],"
        " 'status': [line for line in open('/proc/self/status') if line.startswith(('SigIgn', 'SigBlk', 'SigCgt'))]}))"
    )
    with places(os.geteuid()) as made, Containment(way(mode, made.base)) as containment:
        strange = made.work / "with space, comma:colon\\back"
        strange.mkdir()
        (made.work / "here").symlink_to(strange)
        heard = []
        argv = [sys.executable, "-S", "-c", code, "a b", "", "\udcff"]
        for command in (argv, containment.command(argv)):
            variables = {**os.environ, "PWD": str(made.work / "here"), "PYTHONPATH": "/nowhere::x"}
            ended = subprocess.run(
                command, cwd=made.work / "here", env=variables, input=b"words", capture_output=True, check=True
            )
            heard.append(json.loads(ended.stdout))
        assert heard[0] == heard[1]
        assert heard[1]["cwd"] == str(strange)


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("./text", 126), ("./script", 3)])
def test_a_command_ends_as_in_a_shell(command: str, code: int) -> None:
    with places(os.geteuid()) as made, Containment(way("overlay", made.base)) as containment:
        (made.work / "text").write_text("exit 3\n")
        (made.work / "script").write_text("exit 3\n")
        (made.work / "script").chmod(0o755)
        ended = subprocess.run(containment.command([command]), cwd=made.work, capture_output=True, check=False)
        assert ended.returncode == code
        assert (command in ended.stderr.decode()) == (code != 3)


def test_the_job_does_not_start_where_it_cannot_be_contained() -> None:
    with places(os.geteuid()) as made, Containment(way("overlay", made.base)) as containment:
        argv = containment.command(["touch", str(made.output / "started")])
        broken = [word.replace('"mode": "overlay"', '"mode": "none"') for word in argv]
        process = subprocess.Popen(broken, cwd=made.work)
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, "its end")
        assert containment.why_failed(process.pid) == "no such mode: none"
        assert process.wait() == NOT_CONTAINED
        assert not (made.output / "started").exists()


# Mounts of every kind, in a mount namespace of this driver; a saving job in each; and how the folders look afterwards.
MOUNTING = r"""
import ctypes, json, os, subprocess, sys
from pathlib import Path
from rn50_advisor.advisor.trials.inside import system_calls
from rn50_advisor.advisor.trials.inside.system_calls import *
base, weak, command = Path(sys.argv[1]), sys.argv[2] == "weak", json.loads(sys.argv[3])
system_calls.unshare(CLONE_NEWNS)
system_calls.mount("none", "/", flags=MS_REC | MS_PRIVATE)
def made(name):
    (base / name).mkdir(parents=True)
    return str(base / name)
memory = made("work/in memory, a:b")
system_calls.mount("rn50-test", memory, "tmpfs", data="size=8m")
nested = made("work/in memory, a:b/nested")
system_calls.mount("rn50-test", nested, "tmpfs", data="size=8m")
bound = made("work/bound")
system_calls.mount(str(base / "output"), bound, flags=MS_BIND)
(base / "lower/below").mkdir(parents=True)
layered, upper, inner = made("work/layered"), made("upper"), made("inner")
system_calls.mount("rn50-test", layered, "overlay", data=f"lowerdir={base}/lower,upperdir={upper},workdir={inner}")
fixed = made("work/fixed")
system_calls.mount(str(base / "output"), fixed, flags=MS_BIND)
system_calls.mount("none", fixed, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
single = base / "work/single.txt"
single.write_text("as it was")
system_calls.mount(str(base / "home/old.bin"), str(single), flags=MS_BIND)
alone = made("work/of another user")
channel = os.open("/dev/fuse", os.O_RDWR) if os.path.exists("/dev/fuse") else None
if channel is not None:  # FUSE refuses all but its user, without asking the program behind it
    options = f"fd={channel},rootmode=40000,user_id=54321,group_id=54321"
    system_calls.mount("rn50-test", alone, "fuse.test", data=options)
def seen():
    found = {}
    for folder, folders, files in os.walk(base):
        folders[:] = [name for name in folders if not name.startswith("rn50-try-")]
        found |= {f"{folder}/{name}": Path(folder, name).read_bytes() for name in files} | {f"{folder}/{name}": b"" for name in folders}
    return found
for folder in (memory, nested, bound, layered):
    Path(folder, "old.bin").write_bytes(b"as it was")
before = seen()
if weak:
    ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)  # PR_CAPBSET_DROP of CAP_SYS_ADMIN
for folder in (memory, nested, bound, layered, fixed, str(base / "work")):
    ended = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True)
    print(os.path.basename(folder), json.loads(ended.stdout)["refused"], seen() == before)
writing = [*command[:command.index("--") + 1], sys.executable, "-c", "open('single.txt', 'a').write('x')"]
print("single", subprocess.run(writing, cwd=base / "work").returncode, seen() == before)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED HERE: only root may mount what this test needs")
@pytest.mark.parametrize("power", ["strong", "weak"])
def test_every_kind_of_mount_is_covered(power: str) -> None:
    """`weak`: as root in a container without CAP_SYS_ADMIN, which needs a user namespace."""
    with places(0) as made, Containment(way("overlay", made.base)) as containment:
        command = containment.command([sys.executable, "-c", SAVING_JOB, json.dumps(["."]), "1", "0"])
        driver = [sys.executable, "-c", MOUNTING, str(made.base), power, json.dumps(command)]
        ended = subprocess.run(driver, capture_output=True, text=True, check=False)
        lines = [line.rsplit(" ", 2) for line in ended.stdout.splitlines()]
        assert [(name, refused) for name, refused, _ in lines] == [
            ("in memory, a:b", "[]"),
            ("nested", "[]"),
            ("bound", "[]"),
            ("layered", "[]"),
            ("fixed", f"[{errno.EROFS}]"),
            ("work", "[]"),
            ("single", "0"),
        ], ended.stderr
        assert {unchanged for *_, unchanged in lines} == {"True"}


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED HERE: only root may give folders to another group")
def test_folders_of_other_groups_can_be_written_to_by_their_owner() -> None:
    with contained("overlay", ORDINARY_UID) as (containment, made):
        for folder in (made.work, made.work / "below", made.base):
            os.chown(folder, ORDINARY_UID if folder != made.base else 0, 4444)
        before = made.snapshot()
        with job_of(
            containment, made, ["python3", "-c", SAVING_JOB, json.dumps([".", "below"]), "1", "0"], ORDINARY_UID
        ) as process:
            assert first_line(process)["refused"] == []
            assert process.wait(DEADLINE_S) == 0
        assert made.snapshot() == before


TRAINING = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([(torch.ones(4), 1)] * 96, batch_size=8, num_workers=1)
for x, y in loader:
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0 and sys.argv[1]:
    torch.save(model.state_dict(), sys.argv[1])
"""


@pytest.mark.torch
@pytest.mark.parametrize("mode", MODES)
def test_ranks_with_loader_workers_train_and_are_recorded(mode: Mode, run_folder: Path) -> None:
    with places(os.geteuid()) as made, Containment(way(mode, made.base), keep=[run_folder]) as containment:
        (made.work / "train.py").write_text(TRAINING)
        before = made.snapshot()
        saved = str(made.output / "model.pt") if mode == "overlay" else ""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
        argv = containment.command([*launcher, str(made.work / "train.py"), saved])
        variables = dict(os.environ)
        variables |= {name: value for name, value in containment.environment(variables).items() if value is not None}
        ended = run_to_end(run_folder / "r", argv, cwd=made.work, env=variables)
        assert ended.returncode == 0, ended.stderr.decode()
        recording = read_recording(run_folder / "r")
        assert {rank: len(rows) >= 12 for rank, rows in recording.steps.items()} == {0: True, 1: True}
        assert made.snapshot() == before
