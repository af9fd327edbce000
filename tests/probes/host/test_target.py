"""Probes that read some things seldom can be asked to read everything."""

from __future__ import annotations

from pathlib import Path

from rn50_advisor.probes.host.memory_probe import MemoryProbe
from rn50_advisor.probes.host.sampler import host_probes
from rn50_advisor.probes.host.target import Seldom, Target


def test_only_a_probe_that_can_be_asked_for_everything_is_seldom() -> None:
    assert not isinstance(MemoryProbe(Path("/")), Seldom)
    assert "gpu" in {probe.name for probe in host_probes() if isinstance(probe, Seldom)}


def test_each_probe_of_the_host_has_a_name_of_its_own() -> None:
    names = [probe.name for probe in host_probes()]
    assert len(set(names)) == len(names) and all(names)


def test_targets_of_one_process_are_the_same() -> None:
    assert Target(7, "rank", 0) == Target(7, "rank", 0)
    assert len({Target(7, "worker", 0), Target(7, "worker"), Target(8, "worker", 0)}) == 3
