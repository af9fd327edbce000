"""Scoring of verdicts: what counts as right, as a false alarm, and what the numbers over many results are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples.faults.scenario import Truth
from samples.faults.score import Result, RuleScore, judge, summarise


def finding(rule: str, severity: str = "high", *, ranks: tuple[int, ...] = (), by: str | None = None) -> dict[str, Any]:
    return {
        "rule": rule,
        "severity": severity,
        "title": f"{rule} is so",
        "explained_by": by,
        "scope": {"ranks": list(ranks)},
        "evidence": [{"value": 1.0, "note": "in write_log"}],
        "fixes": [],
    }


def report(*findings: dict[str, Any], state: str = "") -> dict[str, Any]:
    root = next(
        (f["rule"] for f in findings if f["explained_by"] is None and f["severity"] not in ("low", "info")), None
    )
    state = state or ("bottleneck" if root else "healthy")
    return {
        "verdict": {"rule": root, "state": state},
        "findings": list(findings),
        "outcomes": [],
        "budget": {"critical": {}},
    }


@pytest.mark.parametrize(
    ("truth", "given", "right", "alarms"),
    [
        # healthy: nothing of medium severity or above, and the advisor is sure of it
        (Truth(), report(), True, ()),
        (Truth(), report(finding("DAT003", "low")), True, ()),
        (Truth(), report(finding("DAT003", "medium")), False, ("DAT003",)),
        (Truth(), report(state="inconclusive"), False, ()),
        # a root, on its ranks
        (Truth(roots=("DAT003",)), report(finding("DAT003")), True, ()),
        (Truth(roots=("DAT003",)), report(), False, ()),
        (Truth(roots=("DAT003",)), report(finding("DAT003", "low")), False, ()),
        (Truth(roots=("DAT003",)), report(finding("DAT004")), False, ("DAT004",)),
        (Truth(roots=("DAT008",), ranks=(1,)), report(finding("DAT008", ranks=(1,))), True, ()),
        (Truth(roots=("DAT008",), ranks=(1,)), report(finding("DAT008", ranks=(0,))), False, ()),
        (Truth(roots=("DAT008",), ranks=()), report(finding("DAT008", ranks=(0,))), False, ()),
        (Truth(roots=("DAT002", "DAT003")), report(finding("DAT003")), True, ()),
        # what the root explains is no false alarm; a second root is one
        (Truth(roots=("DAT008",)), report(finding("DAT008"), finding("COM002", by="DAT008")), True, ()),
        (Truth(roots=("DAT008",)), report(finding("DAT008"), finding("LOP004")), True, ("LOP004",)),
        (Truth(roots=("DAT008",), also=("LOP004",)), report(finding("DAT008"), finding("LOP004")), True, ()),
        # just below: not this rule; another one is a false alarm unless the truth names it
        (Truth(never=("CMP007",)), report(finding("COM002")), True, ("COM002",)),
        (Truth(never=("CMP007",), also=("COM002",)), report(finding("COM002")), True, ()),
        (Truth(never=("CMP007",)), report(finding("CMP007")), False, ("CMP007",)),
        (Truth(never=("CMP007",)), report(finding("CMP007", "low")), True, ()),
        (Truth(never=("CMP007",)), report(finding("COM002"), finding("CMP007", "medium")), False, ("CMP007", "COM002")),
        # silence about a job that could not be judged proves nothing
        (Truth(never=("CMP007",)), report(state="inconclusive"), False, ()),
        (Truth(never=("CMP007",)), report(state="failed"), False, ()),
        # what must be reported, at any severity
        (Truth(also=("COM004",), noted=("COM004",)), report(finding("COM004", "low")), True, ()),
        (Truth(also=("COM004",), noted=("COM004",)), report(), False, ()),
        (Truth(roots=("DAT008",), noted=("COM002",)), report(finding("DAT008")), False, ()),
        # what must not be reported, at any severity
        (Truth(never=("LOP005",), silent=("LOP005",)), report(finding("LOP005", "low")), False, ()),
        (Truth(never=("LOP005",), silent=("LOP005",)), report(finding("DAT003", "low")), True, ()),
    ],
)
def test_a_verdict_is_right_if_root_ranks_and_all_required_findings_agree(
    truth: Truth, given: dict[str, Any], right: bool, alarms: tuple[str, ...]
) -> None:
    judgement = judge(truth, given)
    assert (judgement.right, judgement.false_alarms) == (right, alarms)
    assert bool(judgement.why_not) is not right


@pytest.mark.parametrize(
    ("lines", "says", "where", "right"),
    [
        (("save(",), "", 2, True),
        (("load(", "save("), "", 2, True),
        (("save(",), "", 1, False),
        (("save(",), "", 9, False),
        (("save(",), "", None, False),
        ((), "write_log", None, True),
        ((), "DAT003 is so", None, True),
        ((), "read_log", None, False),
        (("save(",), "read_log", 2, False),
    ],
)
def test_a_right_verdict_names_the_place(
    tmp_path: Path, lines: tuple[str, ...], says: str, where: int | None, right: bool
) -> None:
    source = tmp_path / "train.py"
    source.write_text("import torch\ntorch.save(model)\n")
    found = finding("DAT003")
    found["fixes"] = [{"title": "t", "where": where and {"file": str(source), "line": where}}]
    judgement = judge(Truth(roots=("DAT003",), lines=lines, says=says), report(found))
    assert judgement.right and judgement.right_place is right


def test_a_verdict_beside_a_rule_that_crashed_is_not_right() -> None:
    outcomes = [{"rule": "DAT003", "state": "clear"}, {"rule": "COM001", "state": "crashed"}]
    judgement = judge(Truth(), {**report(), "outcomes": outcomes})
    assert not judgement.right and judgement.why_not == "COM001 crashed"


def test_a_truth_without_a_place_asks_for_none() -> None:
    assert judge(Truth(roots=("DAT003",)), report(finding("DAT003"))).right_place is None


def result(name: str, primary: str, verdict: str, **more: Any) -> Result:
    return Result(name, primary, primary, "clear", verdict=verdict, right=more.pop("right", primary == verdict), **more)


@pytest.mark.parametrize(
    ("predicted", "measured", "held"),
    [
        ((1.4, 1.6), 1.5, True),
        ((1.4, 1.6), 1.39, False),
        ((1.4, 1.6), 1.61, False),
        (None, 1.5, None),
        ((1.4, 1.6), None, None),
    ],
)
def test_a_prediction_holds_within_its_interval(
    predicted: tuple[float, float] | None, measured: float | None, held: bool | None
) -> None:
    assert result("a", "DAT003", "DAT003", predicted=predicted, measured=measured).held is held


@pytest.mark.parametrize(("measured", "held"), [(1.34, True), (1.32, False), (1.67, True), (1.69, False)])
def test_an_allowance_widens_the_interval_of_an_older_row(measured: float, held: bool) -> None:
    row = result("a", "DAT003", "DAT003", predicted=(1.4, 1.6), measured=measured, allowance=0.05)
    assert row.held is held


def test_recall_is_over_the_truth_and_precision_over_the_verdicts() -> None:
    results = [
        result("a", "DAT003", "DAT003"),
        result("b", "DAT003", "DAT004", false_alarms=("DAT004",)),
        result("c", "DAT004", "DAT004", false_alarms=("LOP004",)),
        result("d", "healthy", "healthy"),
        result("e", "CMP007", "healthy"),
    ]
    assert summarise(results).rules == (
        RuleScore("CMP007", cases=1, hits=0, said=0, false=0),
        RuleScore("DAT003", cases=2, hits=1, said=1, false=0),
        RuleScore("DAT004", cases=1, hits=1, said=2, false=1),
        RuleScore("LOP004", cases=0, hits=0, said=1, false=1),
        RuleScore("healthy", cases=1, hits=1, said=2, false=1),
    )


def test_a_root_that_is_wrong_counts_once_though_the_verdict_was_right() -> None:
    below = result("a", "healthy", "DAT001", right=True, false_alarms=("DAT001",))
    assert RuleScore("DAT001", cases=0, hits=0, said=1, false=1) in summarise([below]).rules


def test_a_rule_that_is_true_beside_the_root_is_recognised_if_it_was_reported() -> None:
    results = [
        result("a", "DAT002", "DAT002", noted=("DSK002",), told=("DSK002",)),
        result("b", "DAT002", "DAT002", noted=("DSK002",), right=False),
    ]
    assert RuleScore("DSK002", cases=2, hits=1, said=0, false=0) in summarise(results).rules


def test_a_verdict_is_prompt_within_enough_steps_or_seconds() -> None:
    seen = [(5.0, 80), (40.0, 30), (20.1, 31), (None, None)]
    results = [result(str(n), "DAT003", "DAT003", first_s=s, first_steps=steps) for n, (s, steps) in enumerate(seen)]
    summary = summarise(results)
    assert (summary.timed, summary.prompt, summary.late) == (3, 2, ("2",))


def test_faults_are_counted_apart_from_what_is_sound_or_just_below() -> None:
    below = replace(result("c", "healthy", "healthy"), strength="just below")
    results = [result("a", "DAT003", "DAT003"), result("b", "DAT003", "DAT004"), below]
    summary = summarise(results)
    assert (summary.found, summary.faulty, summary.right, summary.runs) == (1, 2, 2, 3)


def test_what_was_not_run_counts_nowhere_but_as_not_run() -> None:
    summary = summarise([Result("a", "DAT002", "DAT002", "clear", skipped="no root"), result("b", "DAT003", "DAT003")])
    assert (summary.runs, summary.right, summary.skipped) == (1, 1, 1)
    assert [score.rule for score in summary.rules] == ["DAT003"]


def test_repetitions_that_disagree_are_flips_and_disturbed_runs_are_counted() -> None:
    results = [
        result("a", "DAT003", "DAT003", repetition=0),
        result("a", "DAT003", "DAT004", repetition=1, disturbed=True),
        result("b", "CMP007", "CMP007", repetition=0, ranks=(1,)),
        result("b", "CMP007", "CMP007", repetition=1, ranks=(1,)),
        result("c", "CMP007", "CMP007", repetition=0, ranks=(1,)),
        result("c", "CMP007", "CMP007", repetition=1, ranks=(0,), right=False),
    ]
    summary = summarise(results)
    assert summary.flipped == ("a", "c") and summary.repeated == 3
    assert (summary.scenarios, summary.runs, summary.right, summary.disturbed) == (3, 6, 4, 1)


def test_speed_ups_inside_the_interval_are_counted_and_those_that_were_given_more() -> None:
    pairs = [((1.0, 2.0), 1.5, 0.0), ((1.4, 1.6), 1.62, 0.05), ((1.4, 1.6), 1.62, 0.0), (None, 1.0, 0.0)]
    results = [
        result(str(n), "DAT003", "DAT003", predicted=p, measured=m, allowance=more)
        for n, (p, m, more) in enumerate(pairs)
    ]
    summary = summarise(results)
    assert (summary.predictions, summary.allowed, summary.inside) == (3, 1, 2)
    assert summary.median_width == pytest.approx(2 * (1.68 - 1.33) / (1.68 + 1.33))


def test_what_the_clock_alone_says_of_a_prediction_is_counted_beside_it() -> None:
    results = [
        result("a", "LOP004", "LOP004", predicted=(1.1, 1.2), measured=1.15, timed=1.3),
        result("b", "LOP004", "LOP004", predicted=(1.1, 1.2), measured=1.15),
    ]
    assert [r.held_by_the_clock for r in results] == [False, True]
    summary = summarise(results)
    assert (summary.inside, summary.inside_by_the_clock) == (2, 1)
