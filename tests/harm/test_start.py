"""However a Python of the job is started, it starts as without us: the same `sys.path` entry by entry, and what depends on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.run.launch.job_environment import inherited_environment, with_recorder

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
OURS = ("PYTHONPATH", "RN50_ADVISOR_DIR")
# The one difference that is left: a finder of ours in front, which finds nothing itself.
LOOK = """
import json, os, sys

def main():
    finders = [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path]
    print(json.dumps({
        "path": sys.path,
        "hooks": [repr(hook).split(" at ")[0] for hook in sys.path_hooks],
        "cache": sorted(sys.path_importer_cache),
        "finders": [name for name in finders if name != "_After"],
        "modules": sorted(sys.modules),
        "environ": {k: v for k, v in os.environ.items() if k not in %r},
        "flags": repr(sys.flags),
        "argv": [sys.argv, getattr(sys, "orig_argv", None)],
    }), flush=True)

if __name__ == "__main__":
    main()
""" % (OURS,)  # noqa: UP031

BEFORE = {
    "unset": None,
    "empty": "",
    "one": "{lib}",
    "leading colon": ":{lib}",
    "trailing colon": "{lib}:",
    "double colon": "{lib}::{link}",
    "only a colon": ":",
    "relative": "rel:../job/rel:.",
    "repeated": "{lib}:{job}:{lib}/:{job}",
    "a link": "{link}:{lib}",
    "nowhere": "/no/such/folder:{lib}/no.zip",
}
# What a job's shell script does to it before Python starts.
EDITS = {
    "left alone": "",
    "appended": "export PYTHONPATH=$PYTHONPATH:/src",
    "prepended": "export PYTHONPATH=/src:$PYTHONPATH",
    "appended relative": "export PYTHONPATH=$PYTHONPATH:rel:.",
    "working folder": "export PYTHONPATH=$PWD:$PYTHONPATH:$PWD",
    "both sides": "export PYTHONPATH=/front:$PYTHONPATH:/back",
    "twice": "export PYTHONPATH=$PYTHONPATH:$PYTHONPATH",
    "trailing colon": "export PYTHONPATH=$PYTHONPATH:",
    "two colons": "export PYTHONPATH=::$PYTHONPATH::",
    "replaced": "export PYTHONPATH=/src",
    "emptied": "export PYTHONPATH=",
    "unset": "unset PYTHONPATH",
    "handed on without any other variable": 'exec env -i PYTHONPATH="$PYTHONPATH:/src" "$0" -c "$LOOK"',
    "handed on to an unarmed child": "unset RN50_ADVISOR_DIR; export PYTHONPATH=$PYTHONPATH:/src",
}
# Edits that distinguish an empty one from one that is not. Environment modules and activation scripts also make entries canonical.
GUARDED = {
    "appended": "export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}/src",
    "made canonical": "export PYTHONPATH=$(for e in $(echo $PYTHONPATH | tr : ' '); do printf %s: $(realpath -m $e); done)/src",
}
STARTS = {
    "script": "code/look.py a -b",
    "module": "-m look a -b",
    "code": '-c "$(cat look.py)" a -b',
    "stdin": "- a -b < look.py",
    "folder": "code a -b",
    "archive": "code.zip a -b",
    "isolated": '-I -c "$(cat look.py)"',
    "no environment": '-E -c "$(cat look.py)"',
    "no user site": '-s -c "$(cat look.py)"',
    "optimised": "-OO -W error -X dev code/look.py",
    "spawn": "code/fork.py spawn",
    "forkserver": "code/fork.py forkserver",
    "fork": "code/fork.py fork",
    "a child": "code/child.py",
}
FORK = """
import multiprocessing, sys
from look import main
if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=main)
    child.start()
    child.join()
"""
CHILD = """
import os, subprocess, sys
look = ["-c", open("look.py").read()]
for edit in (lambda p: p + ":/src", lambda p: "/src:" + p, lambda p: p + ":", lambda p: "/src", lambda p: ""):
    subprocess.run([sys.executable, *look], env={**os.environ, "PYTHONPATH": edit(os.environ.get("PYTHONPATH", ""))}, check=True)
os.environ.pop("PYTHONPATH", None)
subprocess.run([sys.executable, *look], check=True)
"""


def interpreter(version: str) -> Path:
    """An interpreter of this version; ours if it is the same, because it lies in a virtual environment."""
    if version == "{}.{}".format(*sys.version_info[:2]):
        return Path(sys.executable)
    for found in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        return found
    program = shutil.which(f"python{version}")
    if program is None or "shims" in program:
        pytest.skip(f"NOT TESTED: no python{version} in ~/.pyenv/versions or on PATH")
    return Path(program)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder to run in, with the same program under every way to start it."""
    folder = tmp_path / "job"
    for name in ("lib", "rel", "code"):
        (folder / name).mkdir(parents=True)
    (folder / "link").symlink_to("lib")
    for file, text in (
        ("look.py", LOOK),
        ("code/look.py", LOOK),
        ("code/__main__.py", LOOK),
        ("code/fork.py", FORK),
        ("code/child.py", CHILD),
    ):
        (folder / file).write_text(text)
    with zipfile.ZipFile(folder / "code.zip", "w") as archive:
        archive.writestr("__main__.py", LOOK)
    (tmp_path / "ring").mkdir(mode=0o700)
    return folder


def seen(
    job: Path, watched: bool, program: Path, before: str | None, script: str, **given: str
) -> list[dict[str, Any]]:
    """The state seen by each Python of a shell script. `$0` is the interpreter."""
    variables = {k: v for k, v in inherited_environment().items() if os.fsdecode(k) not in OURS}
    variables |= {os.fsencode(k): os.fsencode(v) for k, v in given.items()}
    variables |= {b"PYTHONDONTWRITEBYTECODE": b"1", b"PYTHONUSERBASE": os.fsencode(job / "user")}
    if before is not None:
        variables[b"PYTHONPATH"] = before.format(job=job, lib=job / "lib", link=job / "link").encode()
    if watched:
        variables = with_recorder(variables, job.parent / "ring")
    done = subprocess.run(
        ["/bin/sh", "-ec", script, str(program)],
        env=variables,
        cwd=job,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_same(job: Path, program: Path, before: str | None, script: str, **given: str) -> list[dict[str, Any]]:
    alone, watched = (seen(job, with_us, program, before, script, **given) for with_us in (False, True))
    assert len(watched) == len(alone) > 0
    for one, other in zip(alone, watched, strict=True):
        assert other["path"] == one["path"]
        assert other == one
    return alone


def each(edits: dict[str, str]) -> str:
    return "".join(f'({edit}\n exec "$0" -c "$LOOK")\n' for edit in edits.values())


# Python computes its path in C up to 3.10 and in Python since: all of a table in one of each, two or three lines of it in the others.
WHOLE_TABLE = ("3.9", "3.11")


@pytest.mark.parametrize(
    ("version", "before"),
    [
        pytest.param(version, before, id=f"{version}-{name}")
        for version in VERSIONS
        for name, before in BEFORE.items()
        if version in WHOLE_TABLE or name in ("unset", "repeated")
    ],
)
def test_however_pythonpath_is_set_and_edited_the_path_is_that_without_us(
    job: Path, version: str, before: str | None
) -> None:
    assert_same(job, interpreter(version), before, each(EDITS | (GUARDED if before else {})), LOOK=LOOK)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_edit_that_asks_whether_it_was_empty_has_the_working_folder_more(job: Path, version: str) -> None:
    """The text of `$PYTHONPATH:/src` and of `${PYTHONPATH:+$PYTHONPATH:}/src` is one and the same here. The first would miss the folder."""
    program = interpreter(version)
    alone, watched = (seen(job, with_us, program, None, each(GUARDED), LOOK=LOOK) for with_us in (False, True))
    for one, other in zip(alone, watched, strict=True):
        assert other["path"] == ["", str(job), *one["path"][1:]]


@pytest.mark.parametrize(
    ("version", "start"),
    [
        pytest.param(version, start, id=f"{version}-{name}")
        for version in VERSIONS
        for name, start in STARTS.items()
        if version in WHOLE_TABLE or name in ("isolated", "forkserver", "a child")
    ],
)
def test_in_every_start_the_path_is_that_without_us(job: Path, version: str, start: str) -> None:
    safe = "PYTHONSAFEPATH=" if start in (STARTS["fork"], STARTS["spawn"], STARTS["forkserver"]) else "PYTHONSAFEPATH=1"
    script = f'"$0" {start}\nexport {safe} PYTHONPATH=$PYTHONPATH:rel\n"$0" {start}\n'
    for before in (None, ":{lib}"):
        assert_same(job, interpreter(version), before, script)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_a_users_own_sitecustomize_usercustomize_and_pth_files_count_as_without_us(job: Path, version: str) -> None:
    """The .pth file names the working folder, which an empty entry of PYTHONPATH has named before."""
    site = job / "user" / "lib" / f"python{version}" / "site-packages"
    site.mkdir(parents=True)
    (site / "theirs.pth").write_text(f"{job}\n{job / 'rel'}\n")
    (site / "usercustomize.py").write_text("import os, sys\nos.environ['USER_PATH'] = repr(sys.path)\n")
    (job / "lib" / "sitecustomize.py").write_text(
        "import os, sys\nsys.path.append('/theirs')\nos.environ['THEIRS'] = repr(sys.path)\n"
    )
    for before in (None, "/front", "{lib}"):
        found = assert_same(
            job, interpreter(version), before, each({"": "export PYTHONPATH=$PYTHONPATH:lib"}), LOOK=LOOK
        )
        assert "sitecustomize" in found[0]["modules"] and {"THEIRS", "USER_PATH"} <= set(found[0]["environ"])


@pytest.mark.torch
def test_a_job_with_torch_holds_the_modules_that_it_holds_without_us(job: Path) -> None:
    """An extra import of ours might run a file of the job's: torch imports no `resource`, and a job may have one."""
    (job / "resource.py").write_text("print('theirs')\n")
    look = "import sys, json, torch; print(json.dumps({'modules': sorted(sys.modules), 'path': sys.path}))"
    alone, watched = (
        seen(job, with_us, Path(sys.executable), None, f'"$0" -c "{look}"')[0] for with_us in (False, True)
    )
    assert any(name.startswith("_rn50_advisor_rank") for name in watched["modules"])
    watched["modules"] = [name for name in watched["modules"] if not name.startswith("_rn50_advisor_rank")]
    assert watched == alone
