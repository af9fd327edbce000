"""The instance that the provider sold, and what is there of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_boards import board, bus
from probe_trees import write_tree
from rn50_advisor.advisor.instances import by_name as by_name_of
from rn50_advisor.advisor.instances.metadata import NamedInstance
from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions
from rn50_advisor.advisor.triage.instance_checks import gpu_count, instance
from rn50_advisor.advisor.triage.triage_runner import conclude
from triage_hosts import by_name, check_of


def test_the_provider_is_asked_only_on_request_and_a_part_of_an_instance_is_a_note(tmp_path: Path) -> None:
    known = by_name_of("p4d.24xlarge")
    assert known is not None
    root = write_tree(tmp_path, {"sys/devices/system/cpu/online": "0-47\n"})
    setting = TriageOptions(tmp_path, "python", root=root)
    assert list(instance(setting)) == []
    (gap,) = instance(replace(setting, metadata=True))
    assert isinstance(gap, TriageGap)
    named = replace(setting, metadata=True, named=NamedInstance("AWS", known.name, known))
    found = by_name(instance(named))
    assert check_of(found["machine.instance"]).value == "AWS p4d.24xlarge"
    vcpus = found["machine.vcpus"]
    assert check_of(vcpus).expected.lo == 96.0 and check_of(vcpus).state == "low"
    assert isinstance(vcpus, Found) and vcpus.remedy == "note"
    assert check_of(gpu_count((), known)).state == "bad" and check_of(gpu_count((), None)).state == "ok"
    assert "machine.vcpus" not in by_name(instance(replace(named, named=NamedInstance("AWS", "x9.new", None))))


@pytest.mark.parametrize(
    ("on_it", "cores", "state"), [(7, 96, "hand-back"), (8, 96, "keep"), (7, 24, "keep"), (0, 96, "keep")]
)
def test_an_instance_whose_bus_lacks_a_gpu_goes_back(tmp_path: Path, on_it: int, cores: int, state: str) -> None:
    """Another number of cores: a virtual machine on the instance, which holds a part of it."""
    root = bus(tmp_path, ["nvidia"] * on_it, cores=cores)
    item = gpu_count(board(7), by_name_of("p4d.24xlarge"), root)
    assert conclude([item]).verdict.state == state
