"""The table of stalls says which part is the slowest, and how far its rate is from the whole's."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from samples import stalls
from samples.faults.scenario import Conditions
from samples.stalls import SETUPS, Row, WarmImages, markdown


def row(files: float | None, preparation: float, compute: float, measured: float) -> Row:
    return Row("a setup", files, preparation, compute, measured, "DAT002", {"storage": 20.0}, workers=3)


@pytest.mark.parametrize(
    ("files", "preparation", "compute", "slowest"),
    [(20.0, 300.0, 60.0, "storage"), (None, 30.0, 60.0, "preparation"), (90.0, 300.0, 60.0, "nothing: compute")],
)
def test_the_slowest_part_is_what_training_stalls_on(files, preparation, compute, slowest) -> None:
    found = row(files, preparation, compute, measured=25.0)
    assert found.stalled_on == slowest
    assert found.predicted == min(rate for rate in (files, preparation, compute) if rate is not None)


def test_the_table_says_how_far_off_the_least_part_is(monkeypatch) -> None:
    known = {"date": "2026-01-01", "cores": 2, "memory_gib": 4, "python": "3.11", "torch": "2.5", "kernel": "6"}
    monkeypatch.setattr(stalls, "machine", lambda: known)
    monkeypatch.setattr(stalls.os, "sched_getaffinity", lambda pid: {0, 1})
    text = markdown([row(22.0, 300.0, 60.0, 20.0), row(None, 300.0, 60.0, 60.0)])
    assert "by 5% in the median" in text and "10% at most" in text
    assert "| a setup | 22 | 300 | 150 | 60 | 22 | 20 | +10% | storage | DAT002 | storage 20 |" in text


def test_every_setup_reads_the_pictures_it_was_given() -> None:
    for setup in SETUPS:
        assert "--data={images}" in setup.command_line() and setup.command_line("--synthetic")[-1] == "--synthetic"


def test_pictures_in_memory_are_read_before_they_are_used(tmp_path, monkeypatch) -> None:
    read = []

    class Made:
        @contextlib.contextmanager
        def hold(self, folder):
            (folder / "images" / "train").mkdir(parents=True)
            (folder / "images" / "train" / "one.jpg").write_bytes(b"1")
            yield Conditions(values={"images": str(folder / "images")})

    monkeypatch.setattr(Path, "read_bytes", lambda self: read.append(self.name) or b"")
    with WarmImages(Made()).hold(tmp_path) as conditions:
        assert read == ["one.jpg"] and conditions.values["images"] == str(tmp_path / "images")
