"""Whose statement took the cores: an import's, if no other statement ran between two checks."""

from __future__ import annotations

import dis
import functools
import importlib
import sys
import threading
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.facts.affinity_facts import BINDING_VARIABLES, affinity_facts, threads_are_set
from rn50_advisor.probes.rank.facts.process_facts import Facts, torchs_folder

SCRIPT = """import os
import binder
import torch, json.tool as tool
from torch import nn
LIMIT = 3
def train(): pass
import last
os.getpid()
import later
"""


def place(code: CodeType, line: int, file: str = "/job/train.py") -> tuple[CodeType, int, int]:
    """Where Python is while a statement of this line imports."""
    now, offsets = 0, []
    for each in dis.get_instructions(code):
        now = each.starts_line if isinstance(each.starts_line, int) and each.starts_line is not True else now
        if each.opname == "IMPORT_NAME" and now == line:
            offsets.append(each.offset)
    return code.replace(co_filename=file) if file != code.co_filename else code, offsets[0], line


def watched(loss: Any) -> Any:
    checks: list[str] = []
    return SimpleNamespace(at_start=4, loss=loss, check=lambda: checks.append(""), checks=checks)


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BINDING_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("ended", "seen", "by_import"),
    [(2, 2, True), (2, 3, True), (2, 4, True), (2, 7, True), (2, 9, False), (7, 9, False)],
)
def test_an_import_took_them_if_only_imports_ran_until_the_look(ended: int, seen: int, by_import: bool) -> None:
    code = compile(SCRIPT, "/job/train.py", "exec")
    watch = watched((4, 1, "binder", place(code, ended), False, place(code, seen)))
    assert affinity_facts(watch) == {
        "binding_variables": {},
        "cpus_at_start": 4,
        "cpus_lost": {
            "file": "/job/train.py",
            "line": ended,
            "before": 4,
            "after": 1,
            "module": "binder",
            "by_import": by_import,
            "seen": {"file": "/job/train.py", "line": seen},
        },
    }
    assert watch.checks == [""], "it checks once more, at the first step"


def test_an_import_that_was_under_way_took_them_wherever_the_look_was() -> None:
    code, other = compile(SCRIPT, "/job/train.py", "exec"), compile(SCRIPT, "/job/binder.py", "exec")
    for under_way in (True, False):
        facts = affinity_facts(watched((4, 1, "binder", place(code, 2), under_way, place(other, 3, "/job/binder.py"))))
        assert facts["cpus_lost"]["by_import"] is under_way


def test_a_call_that_only_leads_to_imports_may_have_taken_them_itself() -> None:
    code = compile("import os\nfit()\n", "/job/train.py", "exec")
    calls = [each.offset for each in dis.get_instructions(code) if each.opname.startswith("CALL")]
    fit = code, calls[-1], 2
    assert not affinity_facts(watched((4, 1, "late", fit, False, fit)))["cpus_lost"]["by_import"]


def test_a_place_may_be_unknown_or_in_a_package() -> None:
    code = compile(SCRIPT, "/usr/lib/python3/dist-packages/library.py", "exec")
    facts = affinity_facts(watched((4, 1, "", place(code, 2, code.co_filename), False, None)))
    assert facts["cpus_lost"] == {"before": 4, "after": 1, "module": "", "by_import": False, "seen": {}}


def test_without_a_loss_the_cores_at_the_start_are_told_and_the_variables_that_bind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    monkeypatch.setenv("OMP_PLACES", "{0}," * 1000)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    facts = affinity_facts(watched(None))
    assert facts["cpus_at_start"] == 4 and "cpus_lost" not in facts
    assert facts["binding_variables"].keys() == {"OMP_PROC_BIND", "OMP_PLACES"}
    assert len(facts["binding_variables"]["OMP_PLACES"]) == 200
    assert affinity_facts(None) == {"binding_variables": facts["binding_variables"]}


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return Facts(str(tmp_path))


def run_file(facts: Facts, file: str, text: str, **known: Any) -> Any:
    """Runs code as that of a file, which sets the number by `call`; that leaves no frame of its own, as torch's does not."""
    exec(compile(text, file, "exec"), {**known, "call": functools.partial(threads_are_set, facts)})
    return facts.values.get("threads_set")


def test_a_call_of_the_script_has_its_line(facts: Facts) -> None:
    seen = run_file(facts, "/job/train.py", "x = 1\ncall((3,))\n")
    assert seen == {"threads": 3, "file": "/job/train.py", "line": 2, "by_import": False}


def test_a_call_in_a_package_has_both_places(facts: Facts) -> None:
    package = "/env/lib/site-packages/silero_vad/utils.py"
    code = compile("\n\ncall((1,))\n", package, "exec")
    seen = run_file(facts, "/job/train.py", "exec(code, {'call': call})\n", code=code)
    assert (seen["file"], seen["line"]) == ("/job/train.py", 1)
    assert seen["through"] == {"file": package, "line": 3}


def test_torchs_own_call_is_nobodys_choice(facts: Facts) -> None:
    code = compile("call((1,))\n", f"{torchs_folder()}utils/data/_utils/worker.py", "exec")
    assert run_file(facts, "/job/train.py", "exec(code, {'call': call})\n", code=code) is None


def test_a_call_while_a_module_is_imported(facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quiet_threads.py").write_text("import stand_in\nstand_in.call((1,))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(
        sys.modules,
        "stand_in",
        SimpleNamespace(call=functools.partial(threads_are_set, facts)),  # type: ignore[arg-type]
    )
    importlib.import_module("quiet_threads")
    seen = facts.values["threads_set"]
    assert (seen["by_import"], Path(seen["file"]).name, seen["line"]) == (True, "quiet_threads.py", 2)


def test_other_threads_set_their_own_number(facts: Facts) -> None:
    thread = threading.Thread(target=run_file, args=(facts, "/job/train.py", "call((1,))\n"))
    thread.start()
    thread.join()
    assert "threads_set" not in facts.values


@pytest.mark.parametrize("args", ["()", "('two',)"])
def test_a_call_that_raises_sets_nothing(facts: Facts, args: str) -> None:
    assert run_file(facts, "/job/train.py", f"call({args})\n") is None
