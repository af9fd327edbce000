"""Storage in words: the storage of a mount, and the facts that a report shows of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.advisor.model.input.mounts import DataMount, storage_facts
from rn50_advisor.advisor.model.measures.measured import Measured

LOCAL = DataMount("/data", "ext4", "/dev/nvme1n1", False, "nvme1n1")
NFS = DataMount("/home", "nfs4", "server:/x", True, None)


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        (LOCAL, "/data (ext4 on nvme1n1)"),
        (replace(LOCAL, disk="md0", below=("sda", "sdb")), "/data (ext4 on md0 over sda, sdb)"),
        (NFS, "/home (nfs4 from server:/x)"),
        (DataMount("/", "overlay", "overlay", None, None), "/ (overlay)"),
        (DataMount("/dev/shm", "tmpfs", "tmpfs", False, None), "/dev/shm (tmpfs)"),
    ],
)
def test_a_mount_in_words(mount: DataMount, words: str) -> None:
    assert mount.words == words


def test_without_a_mount_or_a_value_there_are_no_facts() -> None:
    assert storage_facts((), Measured()) == {}
    assert storage_facts((), Measured({("storage.host_room_mb", "job"): 100.0})) == {}, (
        "room alone says nothing of storage"
    )


def test_each_further_mount_has_a_row_with_its_rates() -> None:
    values = Measured({("storage.mount_mb_s", "/home"): 50.0, ("storage.mount_reads_s", "/home"): 400.0})
    facts = storage_facts(
        (replace(LOCAL, model="Samsung 990"), NFS, replace(NFS, mount_point="/far", network=None)), values
    )
    assert facts["storage"] == {
        "location": "/data (ext4 on nvme1n1), Samsung 990",
        "also on": "/home (nfs4 from server:/x), over a network, 50 MB/s, 400 reads/s",
        "also on (2)": "/far (nfs4), on another machine or on this host",
    }


def test_units_are_those_that_people_read() -> None:
    values = {"busy_share": 0.5, "epoch_mb": 1500.0, "cache_hit_share": 0.25, "group_room_mb": 2000.0}
    found = storage_facts((LOCAL,), Measured({(f"storage.{name}", "job"): value for name, value in values.items()}))
    storage = found["storage"]
    assert storage["disk"] == "50 % busy" and storage["page cache"] == "25 % of the bytes asked for"
    assert storage["data"].endswith(" per epoch") and storage["room for files"].endswith(" in its control group")
    assert "reads" not in storage


def test_several_epochs_are_listed_one_by_one() -> None:
    hits = {("storage.cache_hit_share", number): share for number, share in enumerate((0.0, 0.5, 1.0))}
    assert storage_facts((LOCAL,), Measured(hits))["storage"]["page cache"] == "by epoch 0 %, 50 %, 100 %"
    one = Measured({("storage.cache_hit_share", 0): 0.5})
    assert "page cache" not in storage_facts((LOCAL,), one)["storage"]
