"""The document of a comparison."""

from __future__ import annotations

from noisy_runs import noisy_run
from rn50_advisor.advisor.model.documents.comparison import Comparison
from rn50_advisor.advisor.run_comparison import compare


def test_the_document_is_plain_and_names_its_schema() -> None:
    made: Comparison = compare((noisy_run("a", 1), noisy_run("b", 2, ranks=2)), max_regression=0.1)
    document = made.as_json()
    assert document["schema"] == "rn50-advisor/compare/1"
    assert list(document) == ["schema", "baseline", "runs", "pairs", "method", "gate"]
    assert set(document["runs"][1]["efficiency"]) == {"value", "lo", "hi"}
    assert document["pairs"][0]["base"] == 0 and document["gate"]["max_regression"] == 0.1
