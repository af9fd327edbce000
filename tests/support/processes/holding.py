"""Folders that a contained job tries to change, jobs that do, and who runs them. Not a test."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.trials.containment import Containment, Mode, Way
from rn50_advisor.advisor.trials.inside.landlock import version_here

ORDINARY_UID = 54321  # not 65534, which also stands for all that a user namespace does not know
# Saves into all folders that it is given: in each step, on SIGTERM, and at its end. Prints what was refused, then "ready" once.
SAVING_JOB = r"""
import atexit, json, os, signal, sys, time
places, steps, code = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
refused = []
def save(name):
    for place in places:
        for path in (os.path.join(place, name), os.path.join(place, "old.bin"), os.path.join(place, "new", name)):
            try:
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                with open(path + ".part", "wb") as file:
                    file.write(b"saved")
                os.replace(path + ".part", path)
            except OSError as error:
                refused.append(error.errno)
def on_term(*_):
    save("on_term")
    sys.exit(code)
signal.signal(signal.SIGTERM, on_term)
atexit.register(save, "at_exit")
for step in range(steps):
    save("step-%d" % step)
    if step == 0:
        print(json.dumps({"refused": sorted(set(refused)), "pid": os.getpid(), "uid": os.getuid()}), flush=True)
    time.sleep(0.01)
sys.exit(code)
"""


# Whether the kernel lets one mount at all, asked without the code that is tested.
MAY_MOUNT = r"""
import ctypes, sys
libc = ctypes.CDLL(None)
entered = libc.unshare(0x20000) == 0 or libc.unshare(0x10020000) == 0
sys.exit(not entered or libc.mount(b"none", b"/", None, ctypes.c_ulong(16384 | 1 << 18), None) != 0)
"""


def way(mode: Mode, place: Path, memory_bytes: int | None = None, *, uid: int | None = None) -> Way:
    """Skips the test, in as many words, where the machine does not offer this way."""
    if mode == "landlock" and not version_here():
        pytest.skip("NOT TESTED HERE: this kernel has no Landlock")
    if mode == "overlay" and not may_mount(os.geteuid() if uid is None else uid):
        pytest.skip("NOT TESTED HERE: this user may not mount anything, not even in a namespace of its own")
    return Way(mode, place, memory_bytes)


@functools.cache
def may_mount(uid: int) -> bool:
    popen: dict[str, Any] = {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.run([python_of(uid), "-S", "-c", MAY_MOUNT], check=False, **popen).returncode == 0


@dataclass(frozen=True)
class Places:
    """A home, a working folder and an output folder with files in them, in a folder that every user may enter."""

    base: Path
    home: Path = field(init=False)
    work: Path = field(init=False)
    output: Path = field(init=False)
    scratch: Path = field(init=False)

    def __post_init__(self) -> None:
        for name in ("home", "work", "output", "scratch"):
            object.__setattr__(self, name, self.base / name)

    def all(self) -> list[Path]:
        return [self.home, self.work, self.output]

    def snapshot(self) -> str:
        """Of names, contents, sizes, rights, owners and times."""
        digest = hashlib.sha256()
        for path in sorted(path for place in self.all() for path in (place, *place.rglob("*"))):
            about = path.lstat()
            digest.update(repr((str(path), about.st_mode, about.st_uid, about.st_size, about.st_mtime_ns)).encode())
            digest.update(path.read_bytes() if path.is_file() and not path.is_symlink() else b"")
        return digest.hexdigest()


@contextmanager
def places(uid: int) -> Iterator[Places]:
    """Belonging to this user."""
    # in a short place, as of a user: names of sockets below it have at most 107 bytes
    base = Path(tempfile.mkdtemp(prefix="h", dir="/tmp"))
    try:
        base.chmod(0o755)
        made = Places(base)
        for folder in (*made.all(), made.scratch):
            (folder / "below").mkdir(parents=True)
            for name in ("old.bin", "below/old.bin"):
                (folder / name).write_bytes(b"as it was")
        (made.work / "link").symlink_to(made.output)
        if uid != os.geteuid():
            for path in (base, *base.rglob("*")):
                os.chown(path, uid, uid, follow_symlinks=False)
        yield made
    finally:
        shutil.rmtree(base)


def python_of(uid: int) -> str:
    """An interpreter of this version that the user may start; skips the test, in as many words, if there is none."""
    if uid == os.geteuid():
        return sys.executable
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for found in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        probe = [found, "-c", "import ctypes, json"]
        try:
            ended = subprocess.run(probe, user=uid, group=uid, extra_groups=[], capture_output=True, check=False)
        except OSError:
            continue
        if ended.returncode == 0:
            return found
    pytest.skip(f"NOT TESTED HERE: user {uid} may start no {version}")


def start(
    containment: Containment, argv: Sequence[str], *, uid: int, cwd: Path, environment: Mapping[str, str], **popen: Any
) -> subprocess.Popen[bytes]:
    """Starts the command in the containment, as this user."""
    command = containment.command(argv)
    if uid != os.geteuid():
        command[0] = python_of(uid)
        command[4] = json.dumps([str(Path(__file__).parents[3] / "src"), *_standard_library()])
        popen |= {"user": uid, "group": uid, "extra_groups": []}
    variables: dict[str, str] = {**os.environ, **environment}
    for name, value in containment.environment(variables).items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value
    return subprocess.Popen(command, cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)


def _standard_library() -> list[str]:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return [f"/usr/lib/{version}", f"/usr/lib/{version}/lib-dynload", f"/usr/local/lib/{version}"]


def give_to(containment: Containment, uid: int) -> None:
    """The folder of the containment, as if this user had made it."""
    folder = containment.folder
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
