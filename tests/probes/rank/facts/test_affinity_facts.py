"""Whose statement took the cores: an import's, if no other statement ran between two looks."""

from __future__ import annotations

import dis
import importlib
import sys
import threading
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.facts.affinity_facts import BINDING_VARIABLES, affinity_facts, threads_are_set
from rn50_advisor.probes.rank.facts.process_facts import Facts

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
    looks: list[str] = []
    return SimpleNamespace(at_start=4, loss=loss, look=lambda: looks.append(""), looks=looks)


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
    assert watch.looks == [""], "it looks once more, at the first step"


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


class Torch:
    """Calls that reach the recorder as those of `torch.set_num_threads`."""

    def __init__(self, folder: Path) -> None:
        self.facts = Facts(str(folder))

    def set_num_threads(self, *args: Any) -> None:
        threads_are_set(self.facts, args)

    @property
    def seen(self) -> Any:
        return self.facts.values.get("threads_set")


@pytest.fixture
def torch(tmp_path: Path) -> Torch:
    return Torch(tmp_path)


def run_file(path: Path, torch: Torch, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    exec(compile(text, str(path), "exec"), {"torch": torch, "__name__": path.stem})


def test_a_call_of_the_script(torch: Torch, tmp_path: Path) -> None:
    run_file(tmp_path / "job/train.py", torch, "x = 1\ntorch.set_num_threads(3)\n")
    assert torch.seen["threads"] == 3
    # the innermost frame is that of this test's stand-in, which is the job's code to the recorder
    assert torch.seen["by_import"] is False and "through" not in torch.seen


def test_a_call_while_a_module_is_imported(torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "job"))
    (tmp_path / "job").mkdir()
    (tmp_path / "job/quiet_threads.py").write_text("import stand_in\nstand_in.torch.set_num_threads(1)\n")
    monkeypatch.setitem(sys.modules, "stand_in", type("M", (), {"torch": torch}))  # type: ignore[arg-type]
    importlib.import_module("quiet_threads")
    assert torch.seen["by_import"] is True and torch.seen["threads"] == 1


def test_other_threads_set_their_own_number(torch: Torch) -> None:
    thread = threading.Thread(target=torch.set_num_threads, args=(1,))
    thread.start()
    thread.join()
    assert torch.seen is None


@pytest.mark.parametrize("args", [(), ("two",)])
def test_a_call_that_raises_sets_nothing(torch: Torch, args: tuple[Any, ...]) -> None:
    torch.set_num_threads(*args)
    assert torch.seen is None
