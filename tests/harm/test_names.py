"""Packages of the user's that are called as ours are, and installations of ours that are broken: the job starts, and so do the commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import click
import pytest

import rn50_advisor
from rn50_advisor import unwatched
from rn50_advisor.advisor.commands.run import run as run_command

HOME = Path(rn50_advisor.__path__[0])
ENTRY = Path(sys.executable).with_name("rn50-advisor")
NAMES = ("advisor", "probes", "rules")
KINDS = {
    "ends": "raise SystemExit(5)\n",
    "raises": "raise RuntimeError('theirs')\n",
    "works": "MARK = 'theirs'\n",
    "namespace": None,
}
DROPPED = ("PYTHONPATH", "RN50_ADVISOR_RUN_DIR", "RN50_ADVISOR_CONFIG", "RN50_ADVISOR_NO_TUI", "RN50_ADVISOR_DEBUG")
CONSOLE_SCRIPT = "from rn50_advisor.entry import main\nmain()\n"


def packages(folder: Path, kind: str) -> Path:
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        text = KINDS[kind]
        (folder / name / ("other.py" if text is None else "__init__.py")).write_text(text or "")
    return folder


def call(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in DROPPED} | variables
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs."""
    folder = tmp_path_factory.mktemp("recorded") / "runs"
    for name in ("first", "second"):
        done = call(
            sys.executable, ENTRY, "run", "--no-tui", "--run-dir", folder, "--name", name, "true", cwd=folder.parent
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds theirs, and ours behind them."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    packages(site, "ends")
    ours = (sysconfig.get_path("purelib"), str(HOME.parent))
    (site / "ours.pth").write_text("import site; site.addsitedir(%r); site.addsitedir(%r)\n" % ours)  # noqa: UP031
    return folder / "bin" / "python"


COMMANDS = {
    "--help": ["--help"],
    "--version": ["--version"],
    "run": ["run", "--no-tui", "--", "echo", "the job"],
    "report": ["report", "first"],
    "report html": ["report", "first", "--format", "html"],
    "watch": ["watch", "first", "--speed", "100"],
    "compare": ["compare", "first", "second"],
    "explain": ["explain", "DAT003"],
    "rules": ["rules"],
    "doctor": ["doctor", "--json", "--python", "false"],
    "bundle": ["bundle", "first", "-o", "handed-on"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_every_command_works_beside_packages_of_these_names(
    tmp_path: Path, recorded: Path, environment: Path, arguments: list[str]
) -> None:
    folder = packages(tmp_path / "theirs", "ends")
    script = tmp_path / "rn50-advisor"
    script.write_text(CONSOLE_SCRIPT)
    programs: dict[str, list[str | Path]] = {
        "working directory": [sys.executable, "-m", "rn50_advisor"],
        "PYTHONPATH": [sys.executable, script],
        "site-packages": [environment, script],
    }
    variables = {"RN50_ADVISOR_RUN_DIR": str(recorded)}
    alone = call(sys.executable, "-I", ENTRY, *arguments, cwd=tmp_path, **variables)
    for place, program in programs.items():
        (folder / "handed-on").unlink(missing_ok=True)
        path = {"PYTHONPATH": f":{folder}"} if place == "PYTHONPATH" else {}
        done = call(*program, *arguments, cwd=folder, **variables, **path)
        assert done.returncode == alone.returncode, (place, done.stderr)
        assert "Traceback" not in done.stderr and "bug" not in done.stderr, (place, done.stderr)
        assert bool(done.stdout) == bool(alone.stdout) and bool(done.stderr) == bool(alone.stderr), place
        if arguments[0] == "run":
            assert done.stdout == "the job\n" and "report  rn50-advisor report" in done.stderr, place


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_recorded_beside_packages_of_every_kind(tmp_path: Path, kind: str) -> None:
    folder = packages(tmp_path / "theirs", kind)
    job = "import sys; print([m for m in sys.modules if m.split('.')[0] in ('advisor', 'probes', 'rules')])"
    program = [sys.executable, "-m", "rn50_advisor", "run", "--no-tui", "--run-dir", tmp_path / "runs"]
    done = call(*program, "--", sys.executable, "-c", job, cwd=folder, PYTHONPATH=str(folder))
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert "Inconclusive" in done.stderr and "unwatched" not in done.stderr


@pytest.mark.parametrize("kind", ["works", "namespace"])
def test_the_job_its_children_and_workers_import_their_own(tmp_path: Path, kind: str) -> None:
    folder = packages(tmp_path / "theirs", kind)
    script = folder / "train.py"
    script.write_text(
        "import multiprocessing, subprocess, sys\n"
        "import advisor, probes, rules\n"
        "def report():\n"
        "    ours = [m for m in sys.modules if m.split('.')[0] in ('advisor', 'probes', 'rules')]\n"
        "    print([(m.__name__, list(m.__path__), getattr(m, 'MARK', None)) for m in (advisor, probes, rules)], ours, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    report()\n"
        "    for method in ('spawn', 'fork', 'forkserver'):\n"
        "        child = multiprocessing.get_context(method).Process(target=report)\n"
        "        child.start()\n"
        "        child.join()\n"
        "    subprocess.run([sys.executable, '-c', 'import advisor, probes, rules, train; train.report()'], check=True)\n"
    )
    alone = call(sys.executable, script, cwd=folder)
    program = [sys.executable, "-m", "rn50_advisor", "run", "--no-tui", "--run-dir", tmp_path / "runs", "--"]
    done = call(*program, sys.executable, script, cwd=folder)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout) == (0, alone.stdout), done.stderr
    assert alone.stdout.count("advisor") >= 10


SHADOWS = ("queue", "signal", "json", "random", "types", "select", "statistics", "click", "numpy", "psutil")


def test_modules_of_the_working_directory_shadow_nothing_of_ours(tmp_path: Path, recorded: Path) -> None:
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    (tmp_path / "rn50-advisor").write_text(CONSOLE_SCRIPT)
    program = [sys.executable, tmp_path / "rn50-advisor"]  # the folder of the script comes first for Python
    done = call(*program, "run", "--no-tui", "--run-dir", tmp_path / "runs", "--", "echo", "the job", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "the job\n") and "Inconclusive" in done.stderr, done.stderr
    asked = call(sys.executable, ENTRY, "doctor", "--json", "--python", sys.executable, cwd=tmp_path)
    checks = {check["name"]: check for check in json.loads(asked.stdout)}
    assert checks["injection"]["state"] == "ok"
    assert "exit" not in checks["the job's torch"]["found"], checks["the job's torch"]


def test_a_dependency_on_pythonpath_comes_behind_the_environments(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit(9)\n")
    done = call(sys.executable, ENTRY, "--version", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout[:12]) == (0, "rn50-advisor"), done.stderr


BROKEN = {
    "nothing beside the entry": {},
    "no Python": {"advisor/__init__.py": "def f(:\n"},
    "ends": {"advisor/__init__.py": "raise SystemExit(5)\n"},
    "raises": {"advisor/__init__.py": "raise KeyError('x')\n"},
    "a dependency that is missing": {"advisor/__init__.py": "", "advisor/cli.py": "import no_such_dependency\n"},
}


@pytest.fixture(params=BROKEN.values(), ids=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command of an installation that cannot be entered."""
    return _installed(tmp_path / "installed", request.param)


def _installed(folder: Path, files: dict[str, str]) -> list[str]:
    """The command of an installation that has these files behind its entry, in a Python without site-packages."""
    package = folder / "rn50_advisor"
    package.mkdir(parents=True)
    for path in HOME.glob("*.py"):
        shutil.copy(path, package)
    for name, text in files.items():
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(text)
    (folder / "rn50-advisor").write_text(CONSOLE_SCRIPT)
    return [sys.executable, "-S", str(folder / "rn50-advisor")]


def test_a_broken_installation_costs_the_recording_and_not_the_job(tmp_path: Path, broken: list[str]) -> None:
    job = [sys.executable, "-c", "import sys; print(sys.argv, file=sys.stderr); print('out'); sys.exit(6)", "--", "-x"]
    alone = call(*job, cwd=tmp_path)
    for options in (["--"], [], ["--no-tui", "--name", "--", "--run-dir=r", "--"]):
        done = call(*broken, "run", *options, *job, cwd=tmp_path)
        first, _, rest = done.stderr.partition("\n")
        assert (done.returncode, done.stdout, rest) == (6, alone.stdout, alone.stderr)
        assert first.startswith("rn50-advisor: the job runs unwatched: ")


def test_the_job_of_a_broken_installation_has_its_own_environment_and_signals(
    tmp_path: Path, broken: list[str]
) -> None:
    look = ["sh", "-c", "env -0 | grep -zv ^_= | sort -z; grep -E 'Sig(Blk|Ign)' /proc/self/status; kill -TERM $$"]
    alone = call("env", *look, cwd=tmp_path, LC_ALL="C")
    done = call(*broken, "run", "--", *look, cwd=tmp_path, LC_ALL="C")
    assert done.returncode == alone.returncode == -15
    assert done.stdout.split("\0")[:-1] == alone.stdout.split("\0")[:-1]
    # Python's own child machinery may have left signals ignored in the process that runs this test; ours adds none
    assert done.stdout == alone.stdout


def test_what_a_broken_installation_cannot_start_it_says(tmp_path: Path, broken: list[str]) -> None:
    for arguments, code in (
        (["run", "--", "no-such-command"], 127),
        (["run", "--", str(tmp_path)], 126),
        (["run", "--no-such-option", "x", "true"], 70),
        (["run", "--help"], 70),
        (["run"], 70),
        (["report"], 70),
    ):
        done = call(*broken, *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("rn50-advisor: ") and "Traceback" not in done.stderr


def test_a_script_without_a_first_line_is_run_by_the_shell(tmp_path: Path, broken: list[str]) -> None:
    script = tmp_path / "job"
    script.write_text('echo "$0" "$@"\nexit 3\n')
    script.chmod(0o755)
    done = call(*broken, "run", "--", script, "a b", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, f"{script} a b\n")


def test_a_job_runs_where_all_dependencies_but_click_are_missing(tmp_path: Path) -> None:
    folder = tmp_path / "installed"
    command = _installed(folder, {})
    for name in NAMES:
        (folder / "rn50_advisor" / name).symlink_to(HOME / name)
    (folder / "click").symlink_to(Path(click.__file__).parent)
    (tmp_path / "pyproject.toml").write_text("[tool.rn50-advisor]\n")
    done = call(*command, "run", "--no-tui", "--report", "r.html", "sh", "-c", "echo job; exit 7", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "job\n")
    assert "No module named 'numpy'" in done.stderr and "bug" not in done.stderr


# What is replaced before the command is entered, and the message to the user.
BREAKS = {
    "the launcher": ("launcher.SignalDesk = broken", "the job runs unwatched: RuntimeError: broken"),
    "the screen": ("on_screen.run_on_screen = refused", "the job runs without the screen: no terminal"),
    "the screen's supervisor": (
        "screen.start_module = lambda *_, **__: subprocess.Popen(['false'])",
        "the job runs without the screen: its supervisor exited with code 1",
    ),
}


@pytest.mark.parametrize(("replacement", "message"), BREAKS.values(), ids=BREAKS)
def test_what_breaks_before_the_job_does_not_keep_it_from_starting(
    tmp_path: Path, replacement: str, message: str
) -> None:
    program = (
        "import subprocess, sys\n"
        "from rn50_advisor import entry\n"
        "import rn50_advisor.advisor.commands.run as run, rn50_advisor.advisor.commands.on_screen as on_screen\n"
        "import rn50_advisor.advisor.run.launch.launcher as launcher, rn50_advisor.advisor.run.launch.screen_job as screen\n"
        "from rn50_advisor.advisor.model.errors import AdvisorError\n"
        "def broken(*_): raise RuntimeError('broken')\n"
        "def refused(*_, **__): raise AdvisorError('no terminal')\n"
        f"run.has_terminal = lambda: 'screen' in {replacement!r}\n"
        f"{replacement}\n"
        "entry.main()\n"
    )
    arguments = ["run", "--run-dir", tmp_path / "runs", "--", "sh", "-c", "echo job; exit 4"]
    done = call(sys.executable, "-c", program, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "job\n")
    assert done.stderr.splitlines()[0] == f"rn50-advisor: {message}"


def test_the_entry_knows_all_options_of_run() -> None:
    options = [parameter for parameter in run_command.params if isinstance(parameter, click.Option)]
    flags = {name for option in options if option.is_flag for name in option.opts}
    valued = {name for option in options if not option.is_flag for name in option.opts}
    assert (flags, valued) == (unwatched._FLAGS, unwatched._VALUED)
