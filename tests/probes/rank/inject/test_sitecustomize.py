"""The file that every Python of the job runs first: whatever it does, the job is as it would have been without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.run.launch.job_environment import inherited_environment, inject_folder, with_recorder
from rn50_advisor.advisor.run.rings.own_folder import LOCK, hold

INJECT = str(inject_folder())
OURS = "_rn50_advisor_rank"
ARMED = "any(type(f).__name__ == '_After' for f in sys.meta_path)"
STATE = "import sys, json; print(json.dumps({'path': sys.path, 'modules': sorted(sys.modules), 'armed': %s}))" % ARMED  # noqa: UP031
WANTED_PYTHONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "ring"
    folder.mkdir(mode=0o700)
    lock = hold(folder)
    yield folder
    os.close(lock)


def left_in(ring: Path) -> list[Path]:
    return [path for path in ring.iterdir() if path.name != LOCK]


def variables(ring: Path | None, **given: str | None) -> dict[bytes, bytes]:
    """The job's environment with the recorder (without it where `ring` is None); None unsets a variable."""
    base = {k: v for k, v in inherited_environment().items() if k not in (b"PYTHONPATH", b"RN50_ADVISOR_DIR")}
    base |= {os.fsencode(k): os.fsencode(v) for k, v in given.items() if v is not None}
    return base if ring is None else with_recorder(base, ring)


def python(ring: Path | None, *arguments: object, **given: Any) -> subprocess.CompletedProcess[str]:
    """A Python of the job. `PYTHONPATH` and other variables by name; `cwd` and `program` as they say."""
    cwd, program = given.pop("cwd", None), given.pop("program", sys.executable)
    command = [str(program), *map(str, arguments)]
    return subprocess.run(
        command, env=variables(ring, **given), cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def state(ring: Path | None, *options: str, **given: Any) -> dict[str, Any]:
    done = python(ring, *options, "-c", STATE, **given)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def same(ring: Path, *arguments: object, **given: Any) -> subprocess.CompletedProcess[str]:
    """Runs it with and without the recorder; nothing that can be seen from outside differs."""
    alone, watched = (python(folder, *arguments, **given) for folder in (None, ring))
    assert (watched.returncode, watched.stdout, watched.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    return watched


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize("before", [None, "", "/some/where", ":/some/where", "/some/where:"])
def test_path_and_modules_are_those_without_us(ring: Path, before: str | None) -> None:
    alone, watched = state(None, PYTHONPATH=before), state(ring, PYTHONPATH=before)
    assert watched["path"] == alone["path"]
    assert watched["modules"] == alone["modules"]
    assert (alone["armed"], watched["armed"]) == (False, True)
    assert left_in(ring) == []


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_isolated_pythons_see_nothing_of_us(ring: Path, option: str) -> None:
    alone, watched = state(None, option), state(ring, option)
    if option == "-S":  # nobody is there to take the entry out; it holds nothing but the hook
        watched["path"].remove(f"{INJECT}_unset")
    assert watched == alone


def test_a_relative_or_repeated_entry_is_taken_out_too(ring: Path, tmp_path: Path) -> None:
    there = os.path.relpath(INJECT, tmp_path)
    assert state(ring, PYTHONPATH=f"{there}:{INJECT}", cwd=tmp_path)["path"] == state(None, cwd=tmp_path)["path"]


def test_grandchildren_find_the_recorder(ring: Path) -> None:
    check = f"import sys; print({ARMED})"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {check!r}])"
    assert python(ring, "-c", code).stdout == "True\n"


def test_a_job_whose_folder_was_deleted_runs_as_without_us(ring: Path, tmp_path: Path) -> None:
    """An entry of the path may be no folder: setuptools puts in the name of a hook for each editable install."""
    site = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(tmp_path / "user")}))
    written(site / "hook.pth", "import sys; sys.path.append('__editable__.theirs.finder.__path_hook__')\n")
    theirs = written(tmp_path / "theirs" / "sitecustomize.py", SAYS).parent
    script = f"mkdir gone; cd gone; rmdir ../gone; exec {sys._base_executable} -c 'import sys; print(sys.path)'"  # type: ignore[attr-defined]
    given = {"PYTHONPATH": str(theirs), "PYTHONUSERBASE": str(tmp_path / "user")}
    done = same(ring, "-c", script, program="/bin/sh", cwd=tmp_path, **given)
    assert "__path_hook__" in done.stdout and done.stderr == ""


def test_a_folder_that_is_gone_arms_nothing(tmp_path: Path) -> None:
    assert not state(tmp_path / "gone")["armed"]


SAYS = "import sys\nprint('their own', __name__, __file__)\n"
USERS_OWN = {
    "runs": SAYS,
    "fails": SAYS + "raise ValueError('boom')\n",
    "lacks a module": "import no_such_module_of_theirs\n",
    "is no Python": "def f(:\n",
    "changes the path": "import sys\nsys.path.insert(0, '/their/path')\n",
}


@pytest.mark.parametrize("text", USERS_OWN.values(), ids=USERS_OWN)
def test_the_users_own_sitecustomize_runs_and_fails_as_without_us(ring: Path, tmp_path: Path, text: str) -> None:
    written(tmp_path / "theirs" / "sitecustomize.py", text)
    code = "import sys; print(sys.path, 'sitecustomize' in sys.modules)"
    same(ring, "-c", code, PYTHONPATH=str(tmp_path / "theirs"))


def test_a_sitecustomize_that_ends_the_process_ends_it(ring: Path, tmp_path: Path) -> None:
    theirs = written(tmp_path / "theirs" / "sitecustomize.py", SAYS + "raise SystemExit(5)\n").parent
    alone, watched = (python(folder, "-c", "print('never')", PYTHONPATH=str(theirs)) for folder in (None, ring))
    assert (watched.returncode, watched.stdout) == (alone.returncode, alone.stdout)
    # Python shows a traceback, with our frames
    assert watched.stderr.splitlines()[-2:] == alone.stderr.splitlines()[-2:]


def test_the_users_own_is_the_module_that_is_loaded(ring: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "theirs" / "sitecustomize.py", "MARK = 3\n")
    code = "import sitecustomize, sys; print(sitecustomize.__file__, sitecustomize.MARK)"
    assert same(ring, "-c", code, PYTHONPATH=str(tmp_path / "theirs")).stdout == f"{file} 3\n"


def test_a_failing_sitecustomize_does_not_cost_the_recorder(ring: Path, tmp_path: Path) -> None:
    written(tmp_path / "theirs" / "sitecustomize.py", "raise ValueError('boom')\n")
    done = python(ring, "-c", f"import sys; print({ARMED})", PYTHONPATH=str(tmp_path / "theirs"))
    assert done.stdout == "True\n"


def fake_torch(folder: Path, text: str = "NAME = 'theirs'\n") -> Path:
    return written(folder / "torch" / "__init__.py", text).parents[1]


def test_a_process_without_torch_never_loads_the_recorder(ring: Path) -> None:
    done = python(ring, "-c", f"import sys, json, decimal; print([m for m in sys.modules if m.startswith({OURS!r})])")
    assert done.stdout == "[]\n" and left_in(ring) == []


def test_importing_torch_starts_the_recorder_once_and_leaves_the_loader_as_it_was(ring: Path, tmp_path: Path) -> None:
    job = fake_torch(tmp_path / "job")
    code = (
        f"import sys, torch; print({OURS!r} in sys.modules, {ARMED}, torch.NAME,"
        " 'exec_module' in vars(torch.__spec__.loader), type(torch.__spec__.loader).__name__)"
    )
    assert python(ring, "-c", code, cwd=job).stdout == "True False theirs False SourceFileLoader\n"


def test_a_torch_that_is_not_as_expected_is_noted_where_the_job_does_not_see_it(ring: Path, tmp_path: Path) -> None:
    job = fake_torch(tmp_path / "job")
    assert same(ring, "-c", "import torch; print(torch.NAME)", cwd=job).stdout == "theirs\n"
    (note,) = ring.glob("error-*.txt")
    assert "Error" in note.read_text()


def test_asking_whether_torch_is_there_leaves_the_hook_armed(ring: Path, tmp_path: Path) -> None:
    job = fake_torch(tmp_path / "job")
    code = f"""
import importlib.util, sys
spec = importlib.util.find_spec("torch")
print(spec.name, spec.origin, {ARMED}, "torch" in sys.modules, {OURS!r} in sys.modules)
import torch
print({ARMED}, {OURS!r} in sys.modules)
"""
    lines = python(ring, "-c", code, cwd=job).stdout.splitlines()
    assert lines == [f"torch {job / 'torch' / '__init__.py'} True False False", "False True"]


def test_a_torch_that_is_not_installed_is_missed_as_without_us(ring: Path, tmp_path: Path) -> None:
    # as if it were not: this process's site-packages may have one
    hide = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; import torch"
    done = same(ring, "-c", hide, cwd=tmp_path)
    assert "No module named 'torch'" in done.stderr


BREAKS = {
    "an ImportError": "raise ImportError('libcudart.so.12: cannot open shared object file')\n",
    "an OSError": "raise OSError('no such library')\n",
    "a module it lacks": "import no_such_module_of_torch\n",
    "a KeyboardInterrupt": "raise KeyboardInterrupt\n",
    "the end": "raise SystemExit(7)\n",
}


@pytest.mark.parametrize("text", BREAKS.values(), ids=BREAKS)
def test_a_torch_that_fails_to_import_raises_its_own_error(ring: Path, tmp_path: Path, text: str) -> None:
    job = fake_torch(tmp_path / "job", text)
    alone, watched = (python(folder, "-c", "import torch", cwd=job) for folder in (None, ring))
    assert watched.returncode == alone.returncode != 0
    assert watched.stderr.splitlines()[-3:] == alone.stderr.splitlines()[-3:], "the place and the error"
    assert left_in(ring) == []


def test_the_traceback_of_a_torch_that_fails_is_that_without_us(ring: Path, tmp_path: Path) -> None:
    same(ring, "-c", "import torch", cwd=fake_torch(tmp_path / "job", BREAKS["an OSError"]))


def test_a_second_try_after_a_failed_import_is_seen(ring: Path, tmp_path: Path) -> None:
    first_fails = "import sys\nif not hasattr(sys, 'tried'):\n    sys.tried = 1\n    raise ImportError('once')\n"
    code = f"import sys\ntry:\n    import torch\nexcept ImportError:\n    import torch\nprint({OURS!r} in sys.modules)"
    assert python(ring, "-c", code, cwd=fake_torch(tmp_path / "job", first_fails)).stdout == "True\n"


def test_children_of_multiprocessing_are_armed(ring: Path, tmp_path: Path) -> None:
    code = f"""
import multiprocessing, sys

def report(queue):
    queue.put({ARMED})

if __name__ == "__main__":
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=report, args=(queue,))
        child.start()
        print(method, queue.get(timeout=60))
        child.join()
"""
    done = python(ring, written(tmp_path / "job.py", code))
    assert done.stdout.splitlines() == ["spawn True", "fork True", "forkserver True"], done.stderr


@pytest.mark.parametrize("name", ["probes", "rules", "advisor"])
def test_packages_of_the_job_with_our_names_are_the_jobs(ring: Path, tmp_path: Path, name: str) -> None:
    job = fake_torch(tmp_path / "job")
    written(job / name / "__init__.py", "MARK = 'theirs'\n")
    script = written(job / "train.py", f"import {name}, torch\nprint({name}.MARK, {name}.__file__)\n")
    assert same(ring, script).stdout == f"theirs {job / name / '__init__.py'}\n"


def test_a_job_without_such_packages_does_not_get_the_recorders(ring: Path, tmp_path: Path) -> None:
    job = fake_torch(tmp_path / "job")
    script = written(
        job / "train.py",
        "import sys, torch\nprint([m for m in sys.modules if m.split('.')[0] in ('probes', 'rules', 'advisor')])\n",
    )
    assert python(ring, script).stdout == "[]\n"


def test_a_private_name_that_is_taken_is_left_alone(ring: Path, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{OURS!r}] = 'theirs'; import torch; print(sys.modules[{OURS!r}])"
    assert python(ring, "-c", code, cwd=fake_torch(tmp_path / "job")).stdout == "theirs\n"
    assert left_in(ring) == []


def pythons() -> list[Path]:
    """Every interpreter that can be found: of pyenv, and on PATH."""
    found = [Path(p) for p in sorted(Path.home().glob(".pyenv/versions/*/bin/python")) if os.access(p, os.X_OK)]
    found += [Path(p) for version in WANTED_PYTHONS if (p := shutil.which(f"python{version}")) and "shims" not in p]
    return found


def by_version() -> Mapping[str, Path]:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return {done.stdout.strip(): p for p in pythons() if (done := python(None, "-c", code, program=p)).returncode == 0}


@pytest.mark.parametrize("version", WANTED_PYTHONS)
def test_every_python_3_runs_it_silently(ring: Path, tmp_path: Path, version: str) -> None:
    program = by_version().get(version)
    if program is None:
        pytest.skip(f"NOT TESTED: no python{version} in ~/.pyenv/versions or on PATH")
    written(tmp_path / "theirs" / "sitecustomize.py", "print('their own')\n")
    job = fake_torch(tmp_path / "job")
    script = written(job / "train.py", "import sys, torch\nprint(torch.NAME, sys.path)\n")
    done = same(ring, script, program=program, PYTHONPATH=str(tmp_path / "theirs"))
    assert done.stdout.startswith("their own\ntheirs") and done.stderr == ""
    assert len(left_in(ring)) == (tuple(map(int, version.split("."))) >= (3, 9)), "the recorder needs 3.9"


# -- cores that an import takes

# Stands in for the kernel, so that the machine may have a single core.
KERNEL = "import os, sys\nos.cores = 4\nos.sched_getaffinity = lambda pid: set(range(os.cores))\n"
WATCH = "watch = next(f for f in sys.meta_path if type(f).__name__ == '_After').affinity\nwatch._cores = 4\n"
# the place of the import, and that of the check
SAYS_LOSS = (
    "import plain\nloss = watch.loss and (*watch.loss[:3], *((place and place[2]) for place in watch.loss[3::2]), watch.loss[4])\n"
    "print(loss)\n"
)
BINDS = "import os\nos.cores = 1\n"
# a finder that itself imports a module while it looks for another
FINDER = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "library_midway":
            import plain_more
sys.meta_path.insert(1, Finder())
"""
FIRST = 1 + len((KERNEL + WATCH).splitlines())  # line of a script's own first statement


@pytest.mark.parametrize(
    ("script", "loss"),
    [
        ("import binds\n", (4, 1, "binds", FIRST, FIRST + 1, False)),
        ("import binds_midway\n", (4, 1, "binds_midway", FIRST, 3, True)),
        ("import finder\nimport library_midway\n", (4, 1, "library_midway", FIRST + 1, FIRST + 1, True)),
        ("import plain_too\nimport library\n", (4, 1, "library", FIRST + 1, FIRST + 1, True)),
        ("import owns\n", (4, 1, "plain_too", 1, 3, False)),
        ("import library_midway\n", (4, 1, "library_midway", FIRST, FIRST, True)),
        ("def late():\n    import library\nlate()\n", (4, 1, "library", FIRST + 1, FIRST + 1, True)),
        ("try:\n    import missing\nexcept ImportError:\n    os.cores = 1\n", (4, 1, "", None, FIRST + 4, False)),
        ("import plain_too\nos.cores = 1\n", (4, 1, "plain_too", FIRST, FIRST + 2, False)),
        ("import binds\nimport plain_too\nos.cores = 4\n", None),
        ("os.cores = 3\nimport plain_too\nimport binds\n", (3, 1, "binds", FIRST + 2, FIRST + 3, False)),
        ("import binds\nimport plain_too\nos.cores = 2\n", (4, 1, "binds", FIRST, FIRST + 1, False)),
        ("import plain_too\n", None),
    ],
)
def test_the_import_that_takes_cores_is_known(ring: Path, tmp_path: Path, script: str, loss: object) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "site-packages"
    for name, text in {
        "plain.py": "",
        "plain_too.py": "",
        "plain_more.py": "",
        "owns.py": "import plain_too, os\nos.cores = 1\nimport plain_more\n",
        "binds.py": BINDS,
        "binds_midway.py": BINDS + "import plain_too\n",
    }.items():
        written(ours / name, text)
    written(theirs / "library" / "__init__.py", "import library.inner\nimport library.last\n")
    written(theirs / "library" / "inner.py", BINDS)
    written(theirs / "library" / "last.py", "")
    written(theirs / "library_midway.py", BINDS + "import plain_too\n")
    written(theirs / "finder.py", FINDER)
    job = written(ours / "train.py", KERNEL + WATCH + script + SAYS_LOSS)
    done = python(ring, job, PYTHONPATH=str(theirs))
    assert (done.stdout, done.stderr) == (f"{loss}\n", "")


def test_a_thread_that_binds_itself_takes_no_cores(ring: Path, tmp_path: Path) -> None:
    written(tmp_path / "binds.py", BINDS)
    written(tmp_path / "plain.py", "")
    script = "import threading\nt = threading.Thread(target=lambda: __import__('binds'))\nt.start(); t.join(); os.cores = 4\n"
    assert python(ring, written(tmp_path / "train.py", KERNEL + WATCH + script + SAYS_LOSS)).stdout == "None\n"


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("os.sched_getaffinity = abs\n", "imported\n"),  # no set: an error of ours
        ("def raises(pid):\n    raise TimeoutError\nos.sched_getaffinity = raises\n", "out of time\n"),  # of a handler
    ],
)
def test_an_import_fails_by_the_jobs_signal_handlers_only(ring: Path, tmp_path: Path, kernel: str, said: str) -> None:
    written(tmp_path / "plain.py", "")
    text = (
        KERNEL
        + kernel
        + "try:\n    import plain\n    print('imported')\nexcept TimeoutError:\n    print('out of time')\n"
    )
    assert python(ring, written(tmp_path / "train.py", text)).stdout == said
