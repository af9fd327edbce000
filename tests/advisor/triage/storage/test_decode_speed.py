"""How fast pictures are decoded, by one core and by all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.triage import child_program
from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions
from rn50_advisor.advisor.triage.host.other_load import Watch
from rn50_advisor.advisor.triage.storage import decode_speed
from rn50_advisor.advisor.triage.storage.timed_io import list_files


def decoded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, results: list[dict[str, Any]], code: int = 0
) -> dict[str, Any]:
    def played(*arguments: object, on_result: Any, **more: object) -> child_program.Ended:
        for result in results:
            on_result(result)
        return child_program.Ended(code, False, "ImportError: no module named PIL")

    monkeypatch.setattr(decode_speed, "run_child", played)
    items = decode_speed.decoding(TriageOptions(tmp_path, "python"), Watch())
    return {item.check.name if isinstance(item, Found) else item.name: item for item in items}


PIPELINE = {"pipeline": "torchvision 1", "whole": True}


@pytest.mark.parametrize(
    ("rate", "whole", "state"), [(174, True, "ok"), (173, True, "low"), (86, True, "bad"), (269, False, "low")]
)
def test_a_core_is_held_against_published_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rate: float, whole: bool, state: str
) -> None:
    found = decoded(monkeypatch, tmp_path, [{**PIPELINE, "whole": whole}, {"one": rate}])
    assert found["decode.images_per_core_s"].check.state == state
    assert found["decode.images_per_core_s"].remedy == "hand-back"
    assert "github.com/ternaus/imread_benchmark" in found["decode.images_per_core_s"].check.expected.source


def test_without_a_decoder_there_is_a_gap_with_a_hint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (gap,) = decoded(monkeypatch, tmp_path, [], 1).values()
    assert "no module named PIL" in gap.reason and "--python" in gap.hint


def test_more_cores_than_are_measured_are_not_expected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """64 processes at most: of 256 cores they can do no more than 64 do."""
    monkeypatch.setattr(decode_speed, "cores_allowed", lambda watch: 256.0)
    found = decoded(monkeypatch, tmp_path, [{**PIPELINE, "one": 300.0, "all": 64 * 200.0}])
    assert found["decode.images_all_cores_s"].check.state == "ok"
    assert found["decode.images_all_cores_s"].check.expected.lo == pytest.approx(0.5 * 64 * 0.75 * 232)


def test_processes_that_died_are_not_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dead = {"why_not_all": "1 of 2 processes ended without a result"}
    found = decoded(monkeypatch, tmp_path, [{**PIPELINE, "one": 300.0}, dead])
    assert isinstance(found["decode.images_all_cores_s"], TriageGap)


def test_cores_that_were_not_available_are_reported_beside_the_rate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = decoded(monkeypatch, tmp_path, [{**PIPELINE, "one": 300.0, "all": 60.0, "ran_share": 0.4}])
    assert found["decode.images_all_cores_s"].ran_share == 0.4
    assert found["decode.images_per_core_s"].ran_share is None


def test_pictures_of_the_data_that_nobody_could_decode_are_a_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def played(*arguments: object, on_result: Any, **more: object) -> child_program.Ended:
        on_result({**PIPELINE, "one": 300.0})
        return child_program.Ended(0, False, "")

    monkeypatch.setattr(decode_speed, "run_child", played)
    for name in ("", "x.jpg"):
        if name:
            (tmp_path / name).write_bytes(bytes(10_000))
        items = decode_speed.decoding(
            TriageOptions(tmp_path, "python", tmp_path, listing=list_files(tmp_path)), Watch()
        )
        (reason,) = [one.reason for one in items if isinstance(one, TriageGap) and "data_images" in one.name]
        assert ("could be decoded" if name else "no JPEGs") in reason
