"""The mounts that the training data lies on, and how each is described."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import (
    FIRST_STEP_NS,
    plan,
    recording,
    series,
    steady_counter,
)
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.storage.data_mount import mount_values
from rn50_advisor.advisor.model.analysis import LoaderFacts
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.model.wording.fact_rows import rows
from rn50_advisor.advisor.report import html, markdown, text
from rn50_advisor.advisor.verdict.diagnose import diagnose
from stage_capacities import evenly, fed, value
from storage_recordings import DISK, LONG, NFS, WORKER, disk, io, mounted


def test_the_mount_with_the_most_files_is_the_datas() -> None:
    other = {**NFS, "mount_point": "/home"}
    samples = {("data.files", "mount:/home"): series((0, 1)), ("data.files", "mount:/data"): series((0, 900))}
    found = analyse(recording(LONG, samples=samples, events=mounted(other, DISK)))
    assert found.storage is not None and found.storage.mount_point == "/data"


def test_each_mount_that_data_lies_on_has_a_row() -> None:
    """Few files were seen open where libraries lie; rank 1's data set names a folder of its own."""
    other, home = {**NFS, "mount_point": "/val"}, {**DISK, "mount_point": "/", "disk": "vda"}
    files = {"/": 2, "/val": 40, "/data": 900}
    rates = {"mount.read_bytes": 50e6, "mount.reads": 400}
    samples = {
        **disk(),
        **{("data.files", f"mount:{point}"): series((0, count)) for point, count in files.items()},
        **{(metric, "mount:/val"): steady_counter(rate) for metric, rate in rates.items()},
    }
    loader = {"id": 0, "num_workers": 1, "training": True}
    named = {
        "loaders": [{**loader, "dataset": {"root": "/far/x"}}],
        "mounts": {"/far/x": {**NFS, "mount_point": "/far"}},
    }
    facts = {100: {"loaders": [loader]}, 101: named}
    made = recording({0: plan(100), 1: plan(100)}, samples=samples, events=mounted(home, other, DISK), facts=facts)
    found = analyse(made)
    assert found.storage is not None and found.storage.mount_point == "/data"
    storage = rows(found.facts, "storage")
    assert storage[:3] == [
        ("location", "/data (ext4 on dm-0 over sda)"),
        ("also on", "/val (nfs4 from server:/x), over a network, 50 MB/s, 400 reads/s"),
        ("also on (2)", "/far (nfs4 from server:/x), over a network"),
    ]
    assert ("reads", "50 MB/s, 400 reads/s, 125 KB each, in 2.00 ms") in storage, "those of the first one"
    report = diagnose(made)
    for shown in (text.render(report), markdown.render(report), html.render(report)):
        assert "also on" in shown and "/val (nfs4 from server:/x)" in shown


def test_a_mount_is_listed_once() -> None:
    loader = {"id": 0, "num_workers": 1, "training": True, "dataset": {"root": "/data/x"}}
    facts = {100: {"loaders": [loader, {**loader, "id": 1, "training": False}], "mounts": {"/data/x": DISK}}}
    samples = {("data.files", "mount:/data"): series((0, 900))}
    found = analyse(recording(LONG, samples=samples, events=mounted(DISK), facts=facts))
    assert [label for label, _ in rows(found.facts, "storage")] == ["location"]


def test_a_folder_that_the_data_set_names_stands_in_where_few_files_were_seen() -> None:
    loader = {"id": 0, "num_workers": 1, "training": True, "dataset": {"root": "/nfs/x"}}
    facts = {100: {"loaders": [loader], "mounts": {"/nfs/x": {**NFS, "mount_point": "/nfs"}}}}
    samples = {("data.files", "mount:/data"): series((0, 2))}
    found = analyse(recording(LONG, samples=samples, events=mounted(DISK), facts=facts))
    assert found.storage is not None and found.storage.mount_point == "/nfs"


@pytest.mark.parametrize(("read_mb_s", "mount"), [(50, "/data"), (45, "/data"), (20, None), (0, None)])
def test_the_disk_that_read_what_the_loaders_read_carries_the_data(read_mb_s: float, mount: str | None) -> None:
    """Nothing was seen open: each file was read in a moment."""
    other = {**DISK, "mount_point": "/", "disk": "vda"}
    samples = {**disk(), **io(60, read_mb_s), ("disk.read_bytes", "disk:vda"): steady_counter(1e6)}
    made = recording(LONG, samples=samples, events=mounted(other, DISK))
    found = analyse(replace(made, processes=(*made.processes, WORKER)))
    assert (found.storage and found.storage.mount_point) == mount


def test_an_unknown_mount_is_reported_as_unknown() -> None:
    found = analyse(recording(LONG))
    assert found.storage is None and "storage" not in found.facts
    assert "no data file was seen open" in found.missing["storage.read_mb_s"]


SEEN_OPEN: dict[str, Any] = {
    "events": (Event(FIRST_STEP_NS, "data_mount", None, None, NFS),),
    "samples": {("data.files", "mount:/data"): series((0, 9))},
}


def test_a_data_set_that_names_no_folder_is_read_from_where_its_files_were_seen_open() -> None:
    """Reads through NFS show no blocks."""
    made = fed(evenly(blocks=0), **SEEN_OPEN)
    assert value(made, "storage") == pytest.approx(2 * 8 / 0.010)
    assert value(made, "preprocessing") == pytest.approx(2 * 8 / 0.060)
    workers = analyse(made).workers
    assert workers is not None and workers.feeds[0].reading_s == pytest.approx(0.010)


@pytest.mark.parametrize(
    ("network", "known", "expected"),
    [
        pytest.param(True, {}, 1.0, id="over the network"),
        pytest.param(False, {}, 0.0, id="local"),
        pytest.param(None, {}, None, id="unknown"),
        pytest.param(True, {("storage.sample_kb", "job"): 0.6}, 1.0, id="a block a sample is asked for"),
        pytest.param(True, {("storage.sample_kb", "job"): 0.1}, None, id="files in memory"),
    ],
)
def test_the_mount_of_open_files_stands_in_for_a_folder(
    network: bool | None, known: dict[tuple[str, int | str], float], expected: float | None
) -> None:
    mounts = (DataMount("/data", "nfs4", "server:/x", network, None),)
    found = mount_values((0,), (), mounts, Measured({("fetch.wall_s", 0): 0.1, **known}))
    assert found == ({} if expected is None else {("data.network_mount", 0): expected})
    assert mount_values((0,), (), (), Measured({("fetch.wall_s", 0): 0.1})) == {}


def test_a_folder_that_the_data_set_names_comes_first() -> None:
    local = {**NFS, "network": False}
    named = LoaderFacts(0, 42, True, "/job/train.py", 42, 2, 8, False, False, {}, mount=local)
    known = Measured({("fetch.wall_s", 0): 0.1})
    assert mount_values((0,), (named,), (DataMount("/data", "nfs4", "server:/x", True, None),), known) == {
        ("data.network_mount", 0): 0.0
    }
