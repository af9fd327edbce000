"""Each document fits the schema that is derived from its types, and names every field of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bench_samples
import fleet_samples
import report_samples
import triage_samples
import trial_samples
from published_schemas import closed, misfits
from rn50_advisor.advisor import cli
from rn50_advisor.advisor.commands.demo.demo import RUN as DEMO
from rn50_advisor.advisor.commands.schemas.json_documents import DOCUMENTS, schema_of
from rn50_advisor.advisor.config_file import load_config
from rn50_advisor.advisor.fleet import baseline
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.model.documents.benchmark import Against, Benchmark, CellChange, Options, Scaling, Sweep
from rn50_advisor.advisor.model.documents.comparison import Estimate
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import Result, rendered
from rn50_advisor.advisor.run_comparison import compare, load
from rn50_advisor.advisor.verdict.diagnose import diagnose
from written_runs import written_run

RUNS = sorted((Path(__file__).parents[4] / "samples" / "runs").glob("*.tar.gz"))
REPORTS: dict[str, Callable[[], Report]] = {
    name: getattr(report_samples, name)
    for name in (
        "bottleneck", "running", "on_two_hosts", "healthy", "with_energy", "hang", "dead_rank", "young", "inconclusive", "empty",
        "hostile", "many_ranks",
    )
}  # fmt: skip


def benchmark() -> Benchmark:
    settings = [bench_samples.setting("bf16", True, batch=batch) for batch in (32, 64)]
    cells = tuple(bench_samples.measured(setting, 400.0, rule="DAT003", title="x") for setting in settings)
    return Benchmark(
        1.7e9,
        bench_samples.machine(),
        Options("resnet50", 224, 1000, 10.0, 4),
        (*cells, bench_samples.cell(settings[0], state="oom", why="no room")),
        (Sweep("bf16", True, 1, "synthetic", (32, 64), (390.0, 400.0), 32, None),),
        (Scaling("bf16", True, 32, "synthetic", (1, 2), (Estimate(1.0, 1.0, 1.0), Estimate(0.9, 0.8, 1.0))),),
        ("fast",),
        Against("then", (CellChange(0, 0, Estimate(1.0, 0.9, 1.1), "same"),), ("note",)),
    )


OTHERS: dict[str, Callable[[], Result]] = {
    "bench": benchmark,
    "fleet": lambda: fleet_samples.many(m3={next(iter(fleet_samples.SOUND)): 1.0}),
    "triage": triage_samples.made,
    "several trials": trial_samples.several,
    "trials without gain": trial_samples.without_gain,
    "undecided trials": trial_samples.undecided,
    "no trial": trial_samples.nothing_tried,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_schema_is_one(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema not installed: pip install '.[dev]'")
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    names = {f"#/$defs/{each}" for each in schema["$defs"]}
    assert set(_references(schema)) == names, "all that is defined is used, and the other way round"


def _references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"]] if "$ref" in schema else []
        return own + [found for each in schema.values() for found in _references(each)]
    return [found for each in schema for found in _references(each)] if isinstance(schema, list) else []


@pytest.mark.parametrize("name", REPORTS)
def test_reports_of_every_state_fit(name: str) -> None:
    assert misfits(rendered(REPORTS[name](), "json")) == []


@pytest.mark.parametrize("run", [DEMO, *RUNS], ids=lambda run: run.name.partition(".")[0])
def test_reports_of_recorded_runs_fit(run: Path) -> None:
    assert misfits(rendered(diagnose(read_job(run)), "json")) == []


@pytest.mark.parametrize("name", OTHERS)
def test_other_results_fit(name: str) -> None:
    assert misfits(rendered(OTHERS[name](), "json")) == []


def test_a_comparison_fits() -> None:
    settings = load_config(None)
    runs = [load(run.name, read_job(run), settings, place=place) for place, run in enumerate(RUNS[:3])]
    assert misfits(rendered(compare(runs, max_regression=5.0), "json")) == []


def test_saved_baselines_fit(tmp_path: Path) -> None:
    baseline.save(tmp_path / "b.json", fleet_samples.many().baselines)
    assert misfits((tmp_path / "b.json").read_text()) == []


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("runs", ("runs", "--json")),
        ("rules", ("rules", "--json")),
        ("calibration", ("rules", "--calibration", "--json")),
        ("doctor", ("doctor", "--json")),
    ],
)
def test_lists_for_programs_fit(
    name: str, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written_run(tmp_path / "runs" / "20250101-000000-first", steps=60)
    done = CliRunner().invoke(cli.cli, command)
    assert done.stdout, done.exception
    assert misfits(done.stdout, name) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d["verdict"].pop("title"),
        lambda d: d["verdict"].update(state="fine"),
        lambda d: d["findings"][0]["evidence"][0].update(value=[]),
        lambda d: d.update(new=1),
        lambda d: d.update(schema="rn50-advisor/report/2"),
        lambda d: d["findings"][0]["saving"]["speedup"].append(3.0),
        lambda d: d["time_lost"].pop("of_s"),
    ],
)
def test_what_differs_does_not_fit(spoil: Callable[[Any], object]) -> None:
    document = json.loads(rendered(report_samples.bottleneck(), "json"))
    spoil(document)
    assert misfits(json.dumps(document), "report")


def test_a_reader_may_meet_fields_that_are_added_later() -> None:
    """The published schemas have room for them; the closed ones of these tests do not."""
    assert (
        "additionalProperties" not in schema_of("report")
        and closed(schema_of("report"))["additionalProperties"] is False
    )
