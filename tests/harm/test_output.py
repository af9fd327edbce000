"""A job's output is the same as alone: tracebacks, warnings, log lines, names, exit code."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INJECT = ROOT / "src" / "rn50_advisor" / "probes" / "rank" / "inject"
JOB = Path(__file__).parent / "output_job.py"
TIMEOUT_S = 240
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
ADDRESS = re.compile(r"0x[0-9a-f]+")  # of objects: another in each process

Outcome = tuple[int, str, str]  # exit code, stdout, stderr


def both(tmp_path: Path, *command: object) -> tuple[Outcome, Outcome]:
    """Exit code, stdout and stderr of a job alone and of the same job in `rn50-advisor run`, whose summary is left out."""
    advisor = [
        sys.executable,
        "-m",
        "rn50_advisor.advisor.cli",
        "run",
        "--no-tui",
        "--run-dir",
        str(tmp_path / "runs"),
        "--",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    outcomes = []
    for name, before in (("alone", []), ("watched", advisor)):
        out, err = tmp_path / (name + ".out"), tmp_path / (name + ".err")
        job = f"exec {shlex.join(map(str, command))} >{shlex.quote(str(out))} 2>{shlex.quote(str(err))}"
        done = subprocess.run(
            [*before, "sh", "-c", job],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        outcomes.append((done.returncode, *(ADDRESS.sub("0x", path.read_text()) for path in (out, err))))
    return outcomes[0], outcomes[1]


def assert_same(alone: Outcome, watched: Outcome) -> None:
    assert watched[0] == alone[0]
    assert watched[1].splitlines() == alone[1].splitlines()
    assert watched[2].splitlines() == alone[2].splitlines()


@pytest.mark.torch
def test_errors_warnings_and_names_at_every_boundary(tmp_path: Path) -> None:
    alone, watched = both(tmp_path, sys.executable, JOB)
    assert alone[0] == 0, alone[2]
    assert alone[2].count("Traceback (most recent call last)") > 40 and alone[2].count("UserWarning") > 40
    assert "in a data set, 8 up" in alone[2] and "in a backward, 8 up" in alone[2]
    assert_same(alone, watched)
    assert list((tmp_path / "runs").glob("*/*")), "it was watched indeed"


ENDS = {
    "an error in a backward": ([], "a_backward_that_raises", 1),
    "Ctrl-C in a backward": ([], "an_interrupted_backward", -2),
    "a warning that is an error": (["-W", "error"], "a_loader_that_pins", 1),
}


@pytest.mark.torch
@pytest.mark.parametrize("end", ENDS, ids=ENDS)
def test_ends(tmp_path: Path, end: str) -> None:
    options, name, code = ENDS[end]
    alone, watched = both(tmp_path, sys.executable, *options, JOB, name)
    assert alone[0] == code and "Traceback" in alone[2], alone
    assert_same(alone, watched)


def interpreter(version: str) -> Path:
    """Skips, loudly, where there is none."""
    candidates = [sys.executable, *sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))]
    candidates += [found for found in [shutil.which(f"python{version}")] if found and "shims" not in found]
    for program in candidates:
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([program, "-c", asked], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return Path(program)
    pytest.skip(f"NOT TESTED: no python{version} in ~/.pyenv/versions or on PATH")


# `frames` is the module under test, the file that is the argument.
FRAMES = """
import gc, importlib.util, logging, os, sys, traceback, warnings
spec = importlib.util.spec_from_file_location("frames", sys.argv[1])
frames = importlib.util.module_from_spec(spec)
spec.loader.exec_module(frames)
logging.basicConfig(stream=sys.stderr, format="%(funcName)s:%(lineno)d")
stands = len(sys.argv) > 2

def around(original):
    def wrapper(*args):
        try:
            return original(*args)
        except BaseException as error:
            frames.hide_frame(error)
            raise
    wrapper.__code__ = frames.passed_over(wrapper.__code__)
    return wrapper if stands else original

@around
def fails(number):
    raise ValueError(number)

@around
@around
def fails_for_a_reason(number):
    try:
        fails(number)
    except ValueError as error:
        raise OSError("why") from error

@around
def speaks(number):
    for level in (1, 2, 3):
        warnings.warn("up %d" % level, stacklevel=level)
        if sys.version_info >= (3, 11):
            logging.warning("", stacklevel=level)

@around
def stops(number):
    raise StopIteration

def yields():
    try:
        yield 1
        fails(1)
    except ValueError:
        traceback.print_exc()
        yield 2

@around
def exits(number):
    raise SystemExit(7)

def handles(number):
    try:
        1 / 0
    except ZeroDivisionError:
        fails(number)

def main():
    for call in (fails, fails_for_a_reason, speaks, stops, handles, around(os.fsync), around(int)):
        try:
            call("-1x")
        except Exception:
            traceback.print_exc()
            assert sys.exc_info()[2] is sys.exc_info()[1].__traceback__
        assert sys.exc_info() == (None, None, None)
    print(list(yields()))
    gc.disable()
    error = ValueError("one object")

    @around
    def again(number):
        raise error

    for _ in range(50):
        try:
            again(1)
        except ValueError:
            pass
        error.__traceback__ = None
    counts = sys.getrefcount(error), sys.getrefcount(ValueError)
    for _ in range(50):
        try:
            again(1)
        except ValueError:
            pass
        error.__traceback__ = None
    assert counts == (sys.getrefcount(error), sys.getrefcount(ValueError)), counts
    exits(1)

main()
"""


@pytest.mark.parametrize("version", PYTHONS)
def test_frames_of_ours_show_in_no_traceback_and_count_for_no_warning(tmp_path: Path, version: str) -> None:
    program = interpreter(version)
    (tmp_path / "job.py").write_text(FRAMES)
    frames = ROOT / "src" / "rn50_advisor" / "probes" / "rank" / "hidden_frames.py"
    alone, watched = (
        subprocess.run(
            [program, "-B", "job.py", frames, *stands], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        for stands in ((), ("they stand there",))
    )
    assert alone.returncode == watched.returncode == 7, watched.stderr
    assert alone.stderr.count("Traceback") >= 7 and "wrapper" not in alone.stderr
    assert (watched.stdout, watched.stderr.splitlines()) == (alone.stdout, alone.stderr.splitlines())


STUBS = {
    "an ImportError": "raise ImportError('libcudart.so.12: cannot open shared object file')\n",
    "an error of the system": "raise OSError('no such library')\n",
    "bad syntax": "import torch.bad\n",
    "an error for a reason": "try:\n    {}[1]\nexcept KeyError as error:\n    raise RuntimeError('no') from error\n",
    "Ctrl-C": "raise KeyboardInterrupt\n",
    "the end": "raise SystemExit(7)\n",
    "a warning": "import warnings\nwarnings.warn('old', stacklevel=2)\nimport torch.old\n",
}


@pytest.mark.parametrize("version", PYTHONS)
def test_importing_a_torch_that_raises_or_warns(tmp_path: Path, version: str) -> None:
    program = interpreter(version)
    rings = tmp_path / "rings"
    rings.mkdir(0o700)
    folders = []
    for number, text in enumerate(STUBS.values()):
        package = tmp_path / str(number) / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        (package / "bad.py").write_text("def :\n")
        (package / "old.py").write_text("import warnings\nwarnings.warn('older', stacklevel=2)\n")
        folders.append(str(package.parent))
    job = tmp_path / "job.py"
    job.write_text(
        "import sys, traceback\n"
        "for folder in sys.argv[1:]:\n"
        "    sys.path.insert(0, folder)\n"
        "    try:\n"
        "        import torch\n"
        "    except BaseException:\n"
        "        traceback.print_exc()\n"
        "    sys.path.pop(0)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    alone, watched = (
        subprocess.run(
            [program, "-B", job, *folders],
            env={**environment, **ours},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for ours in ({}, {"RN50_ADVISOR_DIR": str(rings), "PYTHONPATH": str(INJECT)})
    )
    assert alone.stderr.count("Traceback") >= 6 and alone.stderr.count("UserWarning") == 2
    assert watched.stderr.splitlines() == alone.stderr.splitlines()
