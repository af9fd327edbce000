"""A job is the same with and without the advisor: losses bit by bit, output, warnings, end, `sys.path`, descriptors, files.

One table: the ways to start a job, the shapes of its loop, and what it or its surroundings do to its process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from job import ACTIONS, LOOPS
from pairs import PYTHON, Ended, both

from rn50_advisor.advisor.store.run_reader import read_recording
from tried_jobs import tried

pytestmark = pytest.mark.torch

SCRIPT = [PYTHON, "job.py"]
# Starting a job takes longer than its steps: what may share a process does.
LOOPS_TOGETHER = (
    "plain,two_optimizers,accumulates_and_evaluates,with_a_closure,with_a_scaler",
    "without_loader,steps_in_the_backward,saves,with_a_pass_for_each_loss",
    "with_frozen_networks",
    "leaves_its_loader",
    "leaves_its_workers",
    "by_gradients_alone",
    "in_threads",
    "distributed",
    "fork_workers,spawn_workers",
    "forkserver_workers",
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED HERE: only root may do this to a process")


def must_be_same(alone: Ended, watched: Ended, *, status: int | None = 0, seen: bool = True) -> None:
    assert alone.differences(watched) == "", watched.said
    if status is not None:
        assert alone.status == status, alone.err
    if seen:
        assert watched.run is not None and " steps · " in watched.said, watched.said
    if watched.run is not None:
        assert [gap for gap in read_recording(watched.run).gaps if "not written by any advisor" in gap.reason] == []


# -- ways to start -----------------------------------------------------------------------------------------------------------------


def a_package(work: Path) -> None:
    (work / "src" / "plugins").mkdir(parents=True)
    (work / "src" / "plugins" / "__init__.py").write_text("")
    (work / "local").mkdir()
    (work / "local" / "__init__.py").write_text("import plugins\n")


def a_shell_script(text: str) -> object:
    def setup(work: Path) -> None:
        a_package(work)
        (work / "elsewhere").mkdir()
        shutil.copy2(work / "job.py", work / "elsewhere" / "job.py")
        (work / "run.sh").write_text(textwrap.dedent(text))

    return setup


def own_sitecustomize(work: Path) -> None:
    (work / "site").mkdir()
    (work / "site" / "sitecustomize.py").write_text(
        "import sys\nsys.dont_write_bytecode = True\nprint('mine', sys.path)\n"
    )


STARTS: dict[str, tuple[Sequence[str], dict]] = {
    # all other ways to start a Python, in all versions, without torch: test_start.py
    "module": ([PYTHON, "-m", "job", "plain"], {}),
    "stdin": (["sh", "-c", f"{PYTHON} - plain <job.py"], {}),
    "safe path": ([PYTHON, *(["-P"] if sys.version_info >= (3, 11) else []), "job.py", "plain"], {}),
    "path appended to an unset one": (
        ["sh", "run.sh"],
        {
            "setup": a_shell_script(f"""\
                export PYTHONPATH=$PYTHONPATH:$PWD/src
                {PYTHON} -c 'import local' && {PYTHON} elsewhere/job.py plain
                """)
        },
    ),
    "path put before a given one": (
        ["sh", "run.sh"],
        {
            "environment": {"PYTHONPATH": "{place}/work"},
            "setup": a_shell_script(f"PYTHONPATH=src:$PYTHONPATH {PYTHON} elsewhere/job.py plain\n"),
        },
    ),
    "path unset": (
        ["sh", "run.sh"],
        {"setup": a_shell_script(f"unset PYTHONPATH\n{PYTHON} elsewhere/job.py plain\n"), "seen": False},
    ),
    "own sitecustomize": (
        [*SCRIPT, "plain"],
        {"setup": own_sitecustomize, "environment": {"PYTHONPATH": "{place}/work/site"}},
    ),
    "spawned ranks": ([*SCRIPT, "spawns_its_ranks"], {}),
}


@pytest.mark.parametrize("start", STARTS)
def test_ways_to_start(tmp_path: Path, start: str) -> None:
    command, options = STARTS[start]
    options = dict(options)
    seen = options.pop("seen", True)
    must_be_same(*both(tmp_path, command, **options), seen=seen)


def _of_any_rank(text: str) -> str:
    """Ranks print in any order. A rank of several has one thread of ours, which looks for hangs. Ports and names are made up anew."""
    return "\n".join(sorted(line for line in text.splitlines() if not line.startswith(("Threads", "environment"))))


def test_launchers_with_ranks_that_start_again(tmp_path: Path) -> None:
    """By accelerate's command where it is installed: torchrun, which it uses, starts them again in either case."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max-restarts=1"]
    if importlib.util.find_spec("accelerate") is not None:
        options = [
            "--multi_gpu",
            "--num_processes=2",
            "--num_machines=1",
            "--mixed_precision=no",
            "--dynamo_backend=no",
        ]
        command = ["-m", "accelerate.commands.launch", *options, "--max_restarts=1", "--main_process_port=0"]
    alone, watched = both(tmp_path, [PYTHON, *command, "job.py", "fails_and_starts_again"], same=_of_any_rank)
    # the launcher's own stderr has stamps, numbers of processes, and whom it ended first; its logs lie in a folder of any name
    must_be_same(*(replace(each, err="", files=_without(each.files, "tmp/torchelastic_")) for each in (alone, watched)))
    assert {"work/losses-0.txt", "work/losses-1.txt"} <= set(alone.files)


@pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="NOT TESTED HERE: accelerate is not installed"
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_batches_that_rank_0_loads_for_all(tmp_path: Path, ranks: int) -> None:
    """One rank gets accelerate's dispatching loader, too, if it is told to."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    alone, watched = both(tmp_path, [PYTHON, *launcher, "job.py", "gets_dispatched_batches"], same=_of_any_rank)
    must_be_same(*(replace(each, err="", files=_without(each.files, "tmp/torchelastic_")) for each in (alone, watched)))
    assert {f"work/losses-{rank}.txt" for rank in range(ranks)} <= set(alone.files)
    assert watched.run is not None
    loaders = [loader for facts in read_recording(watched.run).facts.values() for loader in facts.get("loaders", ())]
    assert [loader.get("dispatches") for loader in loaders if loader.get("training")] == [True] * ranks


def _without(files: dict[str, str], beginning: str) -> dict[str, str]:
    return {name: content for name, content in files.items() if not name.startswith(beginning)}


def test_an_interpreter_of_another_environment(tmp_path: Path) -> None:
    """A virtual environment of the oldest other Python there is, which has no torch."""
    found = [path for minor in (9, 10, 11, 12, 13, 14) if minor != sys.version_info.minor for path in _pythons(minor)]
    if not found:
        pytest.skip("NOT TESTED HERE: there is no other Python 3.9 to 3.14")

    def setup(work: Path) -> None:
        subprocess.run([found[0], "-m", "venv", "--without-pip", "own"], cwd=work, check=True)

    alone, watched = both(tmp_path, ["own/bin/python", "job.py", "without_torch"], setup=setup)
    must_be_same(alone, watched, seen=False)


def _pythons(minor: int) -> list[str]:
    """On the PATH, or where pyenv keeps them."""
    name = f"python3.{minor}"
    kept = map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"))
    return [each for each in (shutil.which(name), *kept) if each and _makes_environments(each)]


def _makes_environments(python: str) -> bool:
    return subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode == 0


# -- shapes of the loop ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loops", LOOPS_TOGETHER)
def test_shapes_of_the_loop(tmp_path: Path, loops: str) -> None:
    must_be_same(*both(tmp_path, [*SCRIPT, loops]), seen=loops != "by_gradients_alone")


def test_no_shape_is_left_out() -> None:
    elsewhere = {"spawns_its_ranks", "fails_and_starts_again", "gets_dispatched_batches", "without_torch"}
    assert {name for loops in LOOPS_TOGETHER for name in loops.split(",")} | elsewhere == set(LOOPS)


# -- what a job does to its process ------------------------------------------------------------------------------------------------

ENDS = {
    "exits_by_code": 3,
    "exits_at_once": 5,
    "raises": 1,
    "is_killed": -9,
    "is_terminated": -15,
    "crashes": -11,
}
ROOTS = ("changes_its_root", "changes_its_user", "changes_its_user_at_once")


# By themselves: after one of these the recorder can do little more.
ACTIONS_ALONE = (
    "closes_all_descriptors",
    "closes_all_descriptors_while_it_trains",
    "may_open_few_files",
    "may_write_small_files",
    "deletes_its_folder",
    *ROOTS,
)
ACTIONS_TOGETHER = ("profiles", "collects_all_the_time", "keeps_functions_as_attributes", "turns_warnings_into_errors")
ACTIONS_WITH_WORKERS = (
    "installs_signal_handlers",
    "audits",
    "traces",
    "has_no_collector",
    "forks_while_it_trains",
    "starts_children",
)


@pytest.mark.parametrize(
    "action", [pytest.param(name, marks=needs_root if name in ROOTS else ()) for name in ACTIONS_ALONE]
)
def test_what_a_job_does_to_its_process(tmp_path: Path, action: str) -> None:
    # whoever gives up all rights at once may not read an interpreter that lies in root's home
    status = None if action == "changes_its_user_at_once" else 0
    must_be_same(*both(tmp_path, [*SCRIPT, "plain", action]), status=status, seen=False)


def test_what_a_job_does_in_its_process(tmp_path: Path) -> None:
    must_be_same(*both(tmp_path, [*SCRIPT, "plain", *ACTIONS_TOGETHER]))


@pytest.mark.parametrize("action", ENDS)
def test_how_a_job_ends(tmp_path: Path, action: str) -> None:
    must_be_same(*both(tmp_path, [*SCRIPT, "plain", action]), status=ENDS[action])


def test_an_exception_that_meets_an_excepthook(tmp_path: Path) -> None:
    must_be_same(*both(tmp_path, [*SCRIPT, "plain", "has_an_excepthook", "raises"]), status=1)


def test_actions_of_jobs_with_workers(tmp_path: Path) -> None:
    must_be_same(*both(tmp_path, [*SCRIPT, "fork_workers", *ACTIONS_WITH_WORKERS]))


def test_no_action_is_left_out() -> None:
    tried = {*ACTIONS_ALONE, *ACTIONS_TOGETHER, *ACTIONS_WITH_WORKERS, *ENDS, "has_an_excepthook"}
    assert tried == set(ACTIONS)


# -- what surrounds it -------------------------------------------------------------------------------------------------------------


def _unshared() -> bool:
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0
    )


needs_mounts = pytest.mark.skipif(not _unshared(), reason="NOT TESTED HERE: mounting takes root and a mount namespace")
IN_NAMESPACE = ["unshare", "-m", "sh", "-c"]


@needs_mounts
@pytest.mark.parametrize(
    "shm",
    [
        "mount -t tmpfs -o size=64k tmpfs /dev/shm",
        "mount -t tmpfs -o size=1m tmpfs /dev/shm",
        "mount -t tmpfs -o size=64m tmpfs /dev/shm && dd if=/dev/zero of=/dev/shm/full bs=64k 2>/dev/null; true",
        "mount -t tmpfs -o size=64m,ro tmpfs /dev/shm",
    ],
    ids=["64 KiB", "1 MiB", "full", "read only"],
)
def test_shared_memory_that_is_small_full_or_closed(tmp_path: Path, shm: str) -> None:
    around = [*IN_NAMESPACE, f'{shm} && exec "$@"', "sh"]
    must_be_same(*both(tmp_path, [*SCRIPT, "plain"], around=around), seen=False)


@needs_mounts
def test_a_home_that_may_only_be_read(tmp_path: Path) -> None:
    around = [*IN_NAMESPACE, 'mount -t tmpfs -o ro tmpfs "$HOME" && exec "$@"', "sh"]
    must_be_same(*both(tmp_path, [*SCRIPT, "saves"], around=around))


@pytest.mark.parametrize(
    "limits",
    ["ulimit -n 64", "ulimit -f 200", "ulimit -c 0; ulimit -s 1024; umask 077; nice true; trap '' TERM HUP USR1"],
)
def test_limits_of_the_shell_that_starts_it(tmp_path: Path, limits: str) -> None:
    within = ["sh", "-c", f'{limits}; exec "$@"', "sh"]
    must_be_same(*both(tmp_path, [*SCRIPT, "fork_workers"], within=within), seen=False)


@pytest.mark.parametrize("descriptors", ["<&- >&- 2>&-", "7</dev/null 9>/dev/null"])
def test_descriptors_that_it_is_given(tmp_path: Path, descriptors: str) -> None:
    """The launcher, too, is started so; what the job prints goes to its files all the same. One by one: test_launcher_passthrough.py."""
    around = ["sh", "-c", f'exec "$@" {descriptors}', "sh"]
    alone, watched = both(tmp_path, [*SCRIPT, "plain"], around=around)
    must_be_same(alone, watched, seen=False)


# -- over many steps ---------------------------------------------------------------------------------------------------------------

MANY_STEPS = """
import os, sys, torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(4, 2); optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(2, 4), torch.randn(2, 2)
def resident():
    return int(next(line for line in open('/proc/self/status') if line.startswith('VmRSS')).split()[1])
def step():
    loss = (model(x) - y).square().mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
for _ in range(2_000): step()
before = resident()
for _ in range(40_000): step()
print(model.weight.sum().item().hex(), file=sys.stderr)
print(resident() - before)
"""


def test_memory_does_not_grow_over_many_steps(tmp_path: Path) -> None:
    alone, watched = both(tmp_path, [PYTHON, "-c", MANY_STEPS])
    assert alone.err == watched.err and alone.status == watched.status == 0, watched.err
    assert int(watched.out) - int(alone.out) < 2 * 1024, "KiB, 50 bytes a step"


# -- without a request to try changes ----------------------------------------------------------------------------------------------

# Prints what of the recorder's trials is loaded, and every function in torch's modules and classes that comes from there.
SEARCHES_TORCH = """
import json, sys, types
import torch, torch.utils.data

def functions(value):
    while value is not None:
        if type(value).__name__ == "BuiltIn":
            value = value._call
        value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if not isinstance(value, types.FunctionType):
            return
        yield value
        value = vars(value).get("__wrapped__")

model = torch.nn.Linear(2, 2)
model(torch.zeros(1, 2)).sum().backward()
found = set()
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "torch" and isinstance(module, types.ModuleType):
        for key, value in list(vars(module).items()):
            members = [(key, value)]
            if type(value) is type:
                members = [(key + "." + inner, each) for inner, each in list(vars(value).items())]
            found.update(path for path, each in members for function in functions(each) if "/rank/trials/" in function.__code__.co_filename)
own = [name for name in sys.modules if name.startswith("_rn50_advisor_rank.")]
print(json.dumps([sorted(found), any(".trials" in name for name in own), bool(own)]))
"""
REQUEST = {
    "changes": [
        {"kind": "call", "callable": "DataLoader", "arguments": {"num_workers": 1}},
        {"kind": "call", "callable": "set_num_threads", "arguments": {"num": 1}},
    ],
    "live": None,
}


@pytest.mark.parametrize("request_", [None, REQUEST], ids=["without", "with"])
def test_only_a_request_to_try_changes_puts_their_wrappers_into_torch(
    tmp_path: Path, request_: dict[str, object] | None
) -> None:
    found, loaded, watched = json.loads(tried(tmp_path, SEARCHES_TORCH, request_).out)
    wrapped = ["DataLoader.__init__", "set_num_threads"] if request_ else []
    assert watched and (found, loaded) == (wrapped, request_ is not None)
