"""Processes that decode pictures as a loader's workers do."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[4] / "advisor" / "triage" / "children" / "decode_images.py"


def test_each_decoding_process_gives_its_rate_or_none() -> None:
    spec = importlib.util.spec_from_file_location("decoding_child", PROGRAM)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)

    def breaks(data: bytes) -> None:
        os._exit(1)

    assert program.by_all(breaks, [b""], 2, 0.1) == [None, None]
    assert all(rate > 0 and 0.0 < ran < 1.5 for rate, ran in program.by_all(len, [b""], 2, 0.1))


@pytest.fixture(scope="module")
def program() -> Any:
    pytest.importorskip("PIL", reason="Pillow not installed: pip install '.[train]'")
    spec = importlib.util.spec_from_file_location("decoding_child", PROGRAM)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_picture_that_is_made_is_as_large_as_imagenets(program: Any) -> None:
    from PIL import Image

    data = program.make_picture()
    assert Image.open(io.BytesIO(data)).size == (program.WIDTH, program.HEIGHT)
    assert len(data) == pytest.approx(program.TARGET_BYTES, rel=0.1)


def test_only_pictures_of_the_data_are_decoded(program: Any, tmp_path: Path) -> None:
    pipeline, name, _ = program.choose_pipeline()
    picture, text = tmp_path / "a.jpg", tmp_path / "b.jpg"
    picture.write_bytes(program.make_picture())
    text.write_bytes(b"no picture")
    read = [program.read(str(path)) for path in (picture, text, tmp_path / "gone")]
    assert [program.decodes(pipeline, data) for data in read] == [True, False, False]
    assert "Pillow" in name


def results_of(files: list[str]) -> dict[str, Any]:
    asked = json.dumps({"processes": 2, "seconds": 0.05, "files": files})
    found = subprocess.run(
        [sys.executable, str(PROGRAM), asked], capture_output=True, text=True, timeout=120, check=True
    )
    return {name: value for line in found.stdout.splitlines() for name, value in json.loads(line).items()}


def test_the_program_reports_the_rate_of_one_and_of_all(program: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(program.make_picture())
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    found = results_of([str(tmp_path / name) for name in ("a.jpg", "b.jpg", "gone")])
    assert found["one"] > 0 and found["data"] > 0 and found["all"] > 0
    assert found["data_bytes"] == (tmp_path / "a.jpg").stat().st_size
    assert 0.0 < found["ran_share"] < 1.5
    assert "why_not_all" not in found
    assert "data" not in results_of([])
