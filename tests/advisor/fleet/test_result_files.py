"""Results are found in files and folders, whatever lies beside them."""

from __future__ import annotations

import json
from pathlib import Path

from bench_samples import A100, OPTIONS, measured, setting
from fleet_samples import triage
from rn50_advisor.advisor.bench.conclude import conclude
from rn50_advisor.advisor.fleet.result_files import read_all

RUN = Path(__file__).parents[3] / "samples/runs/throttled.tar.gz"


def test_files_are_found_in_folders_and_others_are_passed_over(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"node{n}").mkdir()
        (tmp_path / f"node{n}" / "triage.json").write_text(json.dumps(triage(f"m{n}")))
    (tmp_path / "node0" / "package.json").write_text("{}")
    (tmp_path / "node0" / "list.json").write_text("[1]")
    (tmp_path / "node0" / "half.json").write_text('{"schema": "rn50-adv')
    broken = triage("m9")
    del broken["checks"][0]["expected"]
    (tmp_path / "broken.json").write_text(json.dumps({**broken, "checks": [{"name": "x"}]}))
    found, unread = read_all([tmp_path])
    assert {one.machine for one in found} == {"m0", "m1", "m2"}
    assert [Path(one.file).name for one in unread] == ["broken.json"]


def test_of_a_benchmarks_folder_only_its_result_is_read(tmp_path: Path) -> None:
    cells = [measured(setting("bf16", True, 256), 1500.0)]
    (tmp_path / "bench.json").write_text(json.dumps(conclude(A100, OPTIONS, cells, made_unix_s=0.0).as_json()))
    (tmp_path / "probe.json").write_text("{}")
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "run.sqlite").write_text("no database")
    found, unread = read_all([tmp_path])
    assert [one.source.kind for one in found] == ["bench"] and unread == []


def test_recordings_are_judged_anew_and_damaged_ones_are_reported(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.sqlite").write_text("no database")
    found, unread = read_all([RUN, tmp_path, tmp_path / "absent.json"])
    assert sorted(Path(one.file).name for one in unread) == ["absent.json", "run"], unread
    assert [one.source.kind for one in found] == ["run"] and any("samples/s" in name for name in found[0].readings)
