"""A benchmark shown: in each format, with hostile names, and by the command from its options to its files and exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench_samples import A100, OPTIONS, cell, measured, setting
from rn50_advisor.advisor.bench.bench_launch import Bench
from rn50_advisor.advisor.bench.conclude import against, conclude
from rn50_advisor.advisor.commands.bench import bench
from rn50_advisor.advisor.model.documents.benchmark import Benchmark, Cell, Setting, parse_benchmark
from rn50_advisor.advisor.model.errors import AdvisorError, Regressed, UsageError
from rn50_advisor.advisor.report import FORMATS
from rn50_advisor.advisor.report.benched import render

HOSTILE = "</script><img src=x onerror=alert(1)>|\x1b[31m`*_@team\n# not a title"


def sample(host: str = "node") -> Benchmark:
    cells = [
        measured(setting("fp32", True, 64), 500.0),
        measured(setting("bf16", True, 64), 900.0),
        measured(setting("bf16", True, 128), 1000.0, rule="DAT001", title="Preprocessing exhausts the CPUs"),
        measured(setting("bf16", True, 256), 1010.0),
        cell(setting("bf16", True, 512), state="oom", why="CUDA out of memory"),
        cell(setting("fp16", True, 64), state="failed", why="exit code 1: RuntimeError: no such kernel"),
        measured(setting("bf16", True, 128, 8), 6400.0),
    ]
    made = conclude(
        replace(A100, host=host), replace(OPTIONS, model=host if host != "node" else "resnet50"), cells, made_unix_s=0.0
    )
    return against(made, made, host)


def test_text_has_the_fastest_first_and_every_setting_once() -> None:
    text = render(sample(), "text")
    lines = text.splitlines()
    assert lines[0] == "resnet50 at 224 px on 8 × NVIDIA A100-SXM4-40GB"
    assert "fastest: 6,400 images/s with bf16, channels-last, batch 128, 8 devices" in lines[1]
    table = text[text.index("setting ") : text.index("BATCHES")]
    assert table.count("bf16, channels-last, batch 256, 1 device") == 1
    assert "does not fit in memory: CUDA out of memory" in table
    assert "DAT001: Preprocessing exhausts the CPUs" in table
    assert re.search(r"128 +1,000 +99 % +knee", text) and re.search(r"512 +– +– +does not fit", text)
    assert re.search(r"8 +80 % +77 % to 83 %", text), "efficiency with its interval"
    assert "against node: 5 no difference" in text


def test_text_stays_readable_where_it_is_narrow() -> None:
    text = render(sample(), "text")
    assert max(len(line) for line in text.splitlines()) <= 165
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_names_obey_nobody(format: str) -> None:
    text = render(sample(HOSTILE), format)
    assert "\x1b" not in text
    assert "<img" not in text or format in ("text", "json"), "which are no markup"
    if format == "md":
        assert "\n# not" not in text and "@team" not in text.replace("@\u200bteam", "")


def test_the_page_holds_its_plots_and_data_and_loads_nothing() -> None:
    page = render(sample(), "html")
    assert len(page) < 400_000
    assert "default-src 'none'" in page and not re.search(r"(src|href)=", page)
    assert page.count("<svg") >= 3 and page.count('class="knee"') == 1
    data = re.search(r'<script type="application/json" id="benchmark-data">(.*?)</script>', page, re.S)
    assert data is not None and parse_benchmark(json.dumps(json.loads(data[1]))).cells == sample().cells
    assert page.count("<script") == 1


def test_json_is_the_contract() -> None:
    document = json.loads(render(sample(), "json"))
    assert list(document)[:4] == ["schema", "made_unix_s", "machine", "options"]
    assert document["cells"][0]["precision"] == "fp32" and document["cells"][0]["images_per_s"]["value"] == 500.0
    assert document["sweeps"][0]["knee"] == 128 and document["sweeps"][0]["oom_at"] == 512


TOLD = {
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

    monkeypatch.setattr(Bench, "probe", lambda self: TOLD)
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
    assert run("--quick", "--against=before.json").exit_code == 0, "without a limit it is only told"
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
