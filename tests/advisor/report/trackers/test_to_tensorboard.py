"""A run as TensorBoard reads it, and what else is in its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from history_samples import with_history
from report_samples import bottleneck
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.report.trackers.parcel import Parcel, parcel_of
from rn50_advisor.advisor.report.trackers.to_tensorboard import PAGE, send


def parcel() -> Parcel:
    return parcel_of(with_history(bottleneck()), started_unix_s=1.7e9, identity="one")


def accumulated(folder: Path) -> EventAccumulator:
    (run,) = (folder / "rn50-advisor").iterdir()
    return EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def test_curves_verdict_and_page_arrive(tmp_path: Path) -> None:
    sent = parcel()
    said = send(str(tmp_path), sent)
    read = accumulated(tmp_path)
    assert set(read.Tags()["scalars"]) == set(sent.points[0].values)
    waits = read.Scalars("step_phase_seconds/input_wait")
    assert [(event.step, event.wall_time) for event in waits] == [(point.step, point.unix_s) for point in sent.points]
    assert [event.value for event in waits] == pytest.approx(
        [point.values["step_phase_seconds/input_wait"] for point in sent.points]
    )
    (text,) = read.Tensors("verdict_and_findings")
    assert text.tensor_proto.string_val[0].decode() == sent.summary
    assert read.SummaryMetadata("verdict_and_findings").plugin_data.plugin_name == "text"
    (run,) = (tmp_path / "rn50-advisor").iterdir()
    assert (run / PAGE).read_text() == sent.page and str(run) in said


def test_sending_again_supersedes_and_touches_nothing_else(tmp_path: Path) -> None:
    sent = parcel()
    theirs = tmp_path / "events.out.tfevents.1.theirs"
    theirs.write_bytes(b"theirs")
    send(str(tmp_path), replace(sent, points=sent.points[:100]))
    watching = accumulated(tmp_path)  # a viewer that stays open
    (run,) = (tmp_path / "rn50-advisor").iterdir()
    (run / "events.out.tfevents.1.other").write_bytes(b"")
    for _ in range(3):
        send(str(tmp_path), sent)
        watching.Reload()
    for read in (accumulated(tmp_path), watching):
        steps = [event.step for event in read.Scalars("step_seconds")]
        assert steps == [point.step for point in sent.points]
    assert theirs.read_bytes() == b"theirs"
    ours = [path.name for path in run.iterdir() if path.name.endswith(".rn50-advisor")]
    assert len(ours) == 3 and (run / "events.out.tfevents.1.other").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.out.tfevents.1.theirs", "rn50-advisor"]


@pytest.mark.parametrize("name", ["../../escape", "a/b", "..", "", "ü" * 300])
def test_any_name_of_a_run_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    send(str(tmp_path / "logs"), replace(parcel(), name=name))
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert len(list((tmp_path / "logs" / "rn50-advisor").iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AdvisorError, match="cannot write"):
        send(str(tmp_path / "file"), parcel())
