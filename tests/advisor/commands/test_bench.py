"""The command `bench`, from its options to its files and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench_samples import cell, measured
from rn50_advisor.advisor.bench.bench_launch import Bench
from rn50_advisor.advisor.commands.bench import bench
from rn50_advisor.advisor.model.documents.benchmark import Cell, Setting, parse_benchmark
from rn50_advisor.advisor.model.errors import AdvisorError, Regressed, UsageError

PROBED = {
    "torch": "2.9",
    "torchvision": "0.24",
    "cuda": "",
    "names": [],
    "capability": None,
    "memory_bytes": [],
    "models": ["resnet50", "vgg19"],
    "bf16_units": True,
}


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`bench` on a CPU whose speed is that of its batch; trains nothing."""

    def measure(self: Bench, wanted: Setting) -> Cell:
        return measured(wanted, 10.0 * wanted.batch / (wanted.batch + 8))

    monkeypatch.setattr(Bench, "probe", lambda self: PROBED)
    monkeypatch.setattr(Bench, "measure", measure)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(bench, ["--run-dir", str(tmp_path / "runs"), *arguments])


def results(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "runs").glob("*-bench*/bench.json"))


def test_the_study_of_batches_on_one_and_two_devices_can_be_asked_for(run: Run, tmp_path: Path) -> None:
    study = (
        "--model vgg19 --image-size 32 --classes 10 --precisions fp32 --layout first --devices 1,2 --all-combinations"
    )
    assert run(*study.split(), "--batches=128,256,512,1024,2048").exit_code == 0
    made = parse_benchmark(results(tmp_path)[0].read_text())
    assert {(one.setting.batch, one.setting.devices) for one in made.cells} == {
        (batch, devices) for batch in (128, 256, 512, 1024, 2048) for devices in (1, 2)
    }
    assert len(made.sweeps) == 2 and made.options.model == "vgg19"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--precisions=tf32"], UsageError),
        (["--model=resnet51"], UsageError),
        (["--device=cuda"], UsageError),
        (["-o", "result.docx"], UsageError),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_measured(
    run: Run, tmp_path: Path, arguments: list[str], error: type[AdvisorError]
) -> None:
    assert isinstance(run(*arguments).exception, error)
    assert results(tmp_path) == []


def test_lists_of_numbers_are_checked(run: Run) -> None:
    for wrong in ("0,1", "two", "1,,2", "-1"):
        assert run(f"--batches={wrong}").exit_code == 2


def test_slower_than_before_beyond_the_limit_is_an_exit_code(run: Run, tmp_path: Path) -> None:
    assert run("--quick", "-o", "before.json").exit_code == 0
    document = json.loads((tmp_path / "before.json").read_text())
    for one in document["cells"]:
        one["images_per_s"] = {key: 3 * value for key, value in one["images_per_s"].items()}
    (tmp_path / "before.json").write_text(json.dumps(document))
    assert run("--quick", "--against=before.json").exit_code == 0, "without a limit it is only reported"
    assert isinstance(run("--quick", "--against=before.json", "--max-regression=5").exception, Regressed)
    assert run("--quick", "--against=before.json", "--max-regression=80").exit_code == 0


def test_ctrl_c_loses_nothing_that_was_measured(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(self: Bench, wanted: Setting) -> Cell:
        if wanted.precision == "bf16":
            raise KeyboardInterrupt
        return measured(wanted, 10.0)

    monkeypatch.setattr(Bench, "measure", measure)
    ended: Any = run("--quick", "--layout=last")
    assert ended.exit_code != 0
    [kept] = results(tmp_path)
    assert [one.setting.precision for one in parse_benchmark(kept.read_text()).cells] == ["fp32"]


def test_nothing_measured_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "measure", lambda self, wanted: cell(wanted, state="failed", why="no luck"))
    assert "no luck" in str(run("--quick").exception)
