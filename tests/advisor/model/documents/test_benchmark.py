"""A benchmark survives its file; no other file is taken for one."""

from __future__ import annotations

import json

import pytest

from bench_samples import A100, OPTIONS, cell, measured, setting
from rn50_advisor.advisor.bench.conclude import conclude
from rn50_advisor.advisor.model.documents.benchmark import parse_benchmark
from rn50_advisor.advisor.model.errors import NotARun


def test_a_result_survives_its_file() -> None:
    cells = [measured(setting("bf16", True, 256), 1200.0, rule="DAT001"), cell(setting("bf16", True, 512), state="oom")]
    cells += [measured(setting("bf16", True, 256, 8), 9000.0)]
    made = conclude(A100, OPTIONS, cells, made_unix_s=5.0)
    assert parse_benchmark(json.dumps(made.as_json())) == made


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": "rn50-advisor/bench/2"}', '{"schema": "rn50-advisor/bench/1"}']
)
def test_any_other_file_is_no_result(text: str) -> None:
    with pytest.raises(NotARun):
        parse_benchmark(text)
