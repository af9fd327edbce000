"""What a script changes after its first backward pass is looked up whenever the facts are written."""

from __future__ import annotations

import gc
import json
import os
import sys
from types import SimpleNamespace

import pytest

from rn50_advisor.probes.rank.facts.process_facts import Facts, call_site, note_compilations
from rn50_advisor.probes.rank.recorder import shortened


@pytest.fixture
def facts(tmp_path, monkeypatch):
    torch = SimpleNamespace(threads=8, get_num_threads=lambda: torch.threads)
    monkeypatch.setitem(sys.modules, "torch", torch)
    made = Facts(str(tmp_path))
    made.active = True
    made.torch = torch
    made.read = lambda: json.loads((tmp_path / f"facts-{os.getpid()}.json").read_text())
    return made


def test_the_number_of_threads_is_that_of_now(facts):
    facts.write()
    assert facts.read()["threads"] == 8
    facts.torch.threads = 2
    facts.write()
    assert facts.read()["threads"] == 2


def group(size, initialized=True):
    return SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: initialized, get_world_size=lambda: size, size=lambda: size
    )


def test_how_many_have_joined_one_group_is_known_even_when_it_has_been_left(facts, monkeypatch):
    facts.write()
    assert "group_size" not in facts.read(), "this torch has no distributed at all"
    facts.torch.distributed = group(8, initialized=False)
    facts.write()
    assert "group_size" not in facts.read(), "whatever WORLD_SIZE says"
    monkeypatch.setitem(sys.modules, "horovod.torch", group(4))
    facts.write()
    assert facts.read()["group_size"] == 4
    facts.torch.distributed = group(8)
    facts.write()
    facts.torch.distributed = group(8, initialized=False)
    monkeypatch.delitem(sys.modules, "horovod.torch")
    facts.write()
    assert facts.read()["group_size"] == 8


def test_the_collectors_state_and_counts_are_those_of_now(facts):
    facts.write()
    before = facts.read()["gc"]
    gc.disable()
    try:
        gc.collect()
        facts.write()
    finally:
        gc.enable()
    after = facts.read()["gc"]
    assert before["enabled"] and not after["enabled"]
    assert after["collections"][-1] == before["collections"][-1] + 1


def test_nothing_is_looked_up_in_a_process_that_is_no_rank(facts, tmp_path):
    facts.active = False
    facts.write()
    assert not list(tmp_path.iterdir())


def test_a_long_message_keeps_its_begin_and_its_last_line():
    traceback = "Caught RuntimeError in worker 0.\n" + "  File ...\n" * 900 + "RuntimeError: no space in shared memory"
    kept = shortened(traceback)
    assert kept.startswith("Caught RuntimeError") and kept.endswith("no space in shared memory")
    assert len(kept) < 2100
    assert shortened("short") == "short"


def test_a_folder_of_the_jobs_may_be_called_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/env/torch/__init__.py"))
    names: dict[str, object] = {"call_site": call_site}
    exec(compile("def inside(): return call_site()", "/env/torch/nn/layer.py", "exec"), names)
    exec(compile("\nfound = inside()", "/home/me/torch/train.py", "exec"), names)
    assert names["found"] == ("/home/me/torch/train.py", 2)


def compiled(at_us, *, name="loss_of", reason=None, **given):
    return SimpleNamespace(
        co_name=name,
        co_filename="train.py",
        co_firstlineno=6,
        entire_frame_compile_time_s=0.5,
        recompile_reason=reason,
        **{"start_time_us": at_us, **given},
    )


def test_compilations_are_noted_once_by_the_monotonic_clock(monkeypatch):
    kept = [
        compiled(1_000_000),
        compiled(3_000_000, reason="0/0: n == 1    # loss * n\nUser stack trace:\n  ..."),
        compiled(3_000_001, name=None),
    ]
    utils = SimpleNamespace(get_compilation_metrics=lambda: kept)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
    values = {}
    note_compilations(values, now_ns=50_000_000_000, wall_us=4_000_000)
    kept.append(compiled(None, start_time=5.0))  # as torch 2.5 tells it
    note_compilations(values, now_ns=52_000_000_500, wall_us=6_000_000)
    note_compilations(
        values, now_ns=53_000_000_000, wall_us=9_000_000
    )  # the wall clock was set: nothing is noted twice
    told = values["compilations"]
    assert [(each["began_ns"], each["reason"]) for each in told] == [
        (47_000_000_000, ""),
        (49_000_000_000, "0/0: n == 1"),
        (51_000_000_500, ""),
    ]
    assert (told[0]["file"], told[0]["line"], told[0]["function"], told[0]["took_ns"]) == (
        "train.py",
        6,
        "loss_of",
        500_000_000,
    )


def test_compilations_have_a_bound_and_cost_nothing_without_dynamo(monkeypatch):
    values = {}
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    note_compilations(values, now_ns=1, wall_us=1)
    assert values == {}
    made = [compiled(10_000 * (number + 1)) for number in range(200)]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(get_compilation_metrics=lambda: made))
    note_compilations(values, now_ns=10_000_000_000, wall_us=10_000_000)
    assert len(values["compilations"]) == 64
