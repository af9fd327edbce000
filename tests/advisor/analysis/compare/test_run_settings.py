"""The settings in which two runs differ, and whether their steps are the same work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from noisy_runs import noisy_run, pair_of
from rn50_advisor.advisor.analysis.compare.run_settings import options

LOADER = {"id": 0, "training": True, "file": "train.py", "line": 7, "num_workers": 0, "batch_size": 8}


def about(**more: Any) -> dict[str, Any]:
    return {"pid": 1, "torch": "2.9.0", "loaders": [LOADER], "gc": {"enabled": True, "collections": [7, 1, 0]}, **more}


@pytest.mark.parametrize(
    ("facts", "argv", "note"),
    [
        (about(optimizer={"parameters": 161}), (), "different parameters"),
        (about(optimizer={"parameters": 62}), ("--model", "vgg19"), "--model not given → vgg19"),
    ],
)
def test_another_model_is_warned_of(facts: dict[str, Any], argv: tuple[str, ...], note: str) -> None:
    base = noisy_run("a", 1, facts=about(optimizer={"parameters": 62}))
    other = noisy_run("b", 2, facts=facts, meta={"argv": ("python", "train.py", *argv)})
    assert any(note in text for text in pair_of(base, other).notes)


def test_a_model_under_ddp_is_the_model_without() -> None:
    ddp = about(ddp=[{"total_parameter_size_bytes": 5}], optimizer={"parameters": 62})
    alone = noisy_run("a", 1, facts=about(optimizer={"parameters": 62}))
    assert pair_of(alone, noisy_run("b", 2, ranks=2, facts=ddp)).notes == ()
    larger = about(ddp=[{"total_parameter_size_bytes": 6}], optimizer={"parameters": 62})
    pair = pair_of(noisy_run("b", 2, ranks=2, facts=ddp), noisy_run("c", 3, ranks=2, facts=larger))
    assert any("different parameters" in note for note in pair.notes)


def test_changed_facts_are_listed_and_passing_ones_are_not() -> None:
    argv = ("torchrun", "--nproc_per_node=2", "train.py", "--lr", "0.1", "--amp")
    one = about(work=[[0, 10, 140_132, 4]], compilations=[])
    loaders = [{**LOADER, "num_workers": 4, "line": 9}]
    other = about(torch="2.10.0", pid=2, loaders=loaders, gc={"enabled": True}, work=[[0, 10, 140_016, 4]])
    environment = {"variables": {"OMP_NUM_THREADS": "4", "MASTER_PORT": "1"}, "cpu_model": "EPYC"}
    pair = pair_of(
        noisy_run("a", 1, facts=one, meta={"argv": argv}),
        noisy_run("b", 2, facts=other, meta={"argv": (*argv[:4], "0.2"), "environment": environment}),
    )
    changed = {(c.group, c.name): (c.base, c.other) for c in pair.facts}
    assert changed == {
        ("arguments", "--lr"): ("0.1", "0.2"),
        ("arguments", "--amp"): ("yes", None),
        ("loader", "num_workers"): ("0", "4"),
        ("versions", "torch"): ("2.9.0", "2.10.0"),
        ("environment", "OMP_NUM_THREADS"): (None, "4"),
        ("machine", "cpu_model"): (None, "EPYC"),
    }


def test_several_gpus_are_compared_by_what_they_are() -> None:
    def gpus(*models: tuple[str, int]) -> dict[str, Any]:
        each = [
            {"index": at, "pci_bus_id": f"0000:{at}0", "name": name, "limit_w": watts}
            for at, (name, watts) in enumerate(models)
        ]
        paths = [{"a": 0, "b": at, "p2p": "OK", "path": "NV18"} for at in range(1, len(models))]
        return {"gpus": each, "gpu_paths": paths, "mounts": []}

    def listed(one: dict[str, Any], two: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
        pair = pair_of(noisy_run("a", 1, meta={"environment": one}), noisy_run("b", 2, meta={"environment": two}))
        return [(c.name, c.base, c.other) for c in pair.facts]

    eight = gpus(*[("H100", 700)] * 8)
    assert listed(eight, gpus(*[("H100", 700)] * 2)) == [("gpus", "8", "2")]
    assert listed(eight, gpus(("H100", 700))) == [
        ("gpus", "8", "1"),
        ("gpu_paths.p2p", "OK", None),
        ("gpu_paths.path", "NV18", None),
    ]
    assert listed(eight, gpus(*[("H100", 700)] * 7, ("H100", 350))) == [("gpus.limit_w", "700", "7 × 700, 350")]


def test_how_often_ranks_talked_is_no_difference_and_how_they_are_connected_is() -> None:
    def run(name: str, calls: int, transport: str) -> Any:
        sites = [
            {"kind": "all_reduce", "calls": calls, "bytes": calls, "ns": calls},
            {"kind": "barrier", "calls": calls},
        ]
        loaded = noisy_run(name, calls, facts=about(collectives=sites))
        nccl = {"transports": {transport: calls}, "channels": 8, "ranks": calls, "nodes": 1}
        return replace(loaded, report=replace(loaded.report, facts={**loaded.report.facts, "nccl": nccl}))

    pair = pair_of(run("a", 1, "P2P"), run("b", 2, "NET/Socket"))
    assert [(c.group, c.name, c.base, c.other) for c in pair.facts] == [("NCCL", "transports", "P2P", "NET/Socket")]


def test_arguments_are_taken_apart_as_a_shell_user_means_them() -> None:
    assert options(["/x/python", "-u", "train.py", "--lr=0.1", "--steps", "5", "-v", "--shift", "-3", "a", "b"]) == {
        "program": "python",
        "-u": "train.py",
        "--lr": "0.1",
        "--steps": "5",
        "-v": "yes",
        "--shift": "yes",
        "argument 1": "-3",
        "argument 2": "a",
        "argument 3": "b",
    }
