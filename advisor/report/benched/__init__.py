"""Shows one `Benchmark` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.benchmark import Benchmark
from rn50_advisor.advisor.report import rendered


def render(benchmark: Benchmark, format: str) -> str:
    """The whole benchmark in one of the report's formats; ends with one newline."""
    return rendered(__name__, benchmark, format)
