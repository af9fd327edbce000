"""CMP026, operations are composed of elementary ones: its table, and what is known of their backward pass."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from rn50_advisor.advisor.model.analysis import Analysis, ComposedForm, ComposedLines
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.rules.layers.composed_advice import FORMS
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp026(
    composed: float | None = 0.2,
    *,
    elementary: float | None = 0.2,
    form: ComposedForm = "layer norm",
    samples: int = 80,
    more: tuple[ComposedLines, ...] = (),
    **rest: Any,
) -> Analysis:
    """A rank that spends so many seconds of its second in such lines, and in elementwise nodes of its backward pass."""
    line = ComposedLines(SCRIPT, 57, "forward", form, samples)
    values = {"step.composed_s": composed, "step.elementary_s": elementary}
    known = {name: {0: value} for name, value in values.items() if value is not None}
    return job({0: rank(forward=0.5, backward=0.5)}, **{"values": known, "composed_lines": (line, *more), **rest})


TABLE = Table(
    "CMP026",
    cmp026,
    lines={"composed": ({"composed": 0.0334, "elementary": 0.0334}, {"composed": 0.0333, "elementary": 0.0333})},
    false_alarms={
        "hardly any": {"composed": 0.01},
        "too few samples of a line": {"samples": 9},
        "on a GPU": {"facts": {"0": {"cuda": {"devices": 1}}}},
    },
    severities=(
        ({"composed": 0.2}, "critical"),
        ({"composed": 0.1, "elementary": 0.1}, "high"),
        ({"composed": 0.04, "elementary": 0.04}, "medium"),
    ),
    where=Where(SCRIPT, 57),
    not_measured={"no profile": ({"composed": None}, ("step.composed_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_each_form_has_its_advice() -> None:
    assert set(FORMS) == set(get_args(ComposedForm))
    for form in FORMS:
        (fix,) = found("CMP026", cmp026(0.3, elementary=0.3, form=form)).fixes
        assert fix.where == Where(SCRIPT, 57) and fix.change and " instead of " in fix.title


def test_the_backward_pass_counts_as_far_as_its_elementwise_nodes_are_known() -> None:
    saving = found("CMP026", cmp026(0.1, elementary=0.2)).saving
    alone = found("CMP026", cmp026(0.1, elementary=0.0)).saving
    unknown = found("CMP026", cmp026(0.1, elementary=None)).saving
    assert saving is not None and alone is not None and unknown is not None
    assert saving.seconds_per_step == pytest.approx((0.24, 0.3))
    assert alone.seconds_per_step == pytest.approx((0.08, 0.1))
    assert unknown.seconds_per_step == pytest.approx((0.08, 0.45)), "at best as much as any had"


def test_nodes_of_others_are_not_counted() -> None:
    saving = found("CMP026", cmp026(0.05, form="gelu by tanh", elementary=0.4)).saving
    assert saving is not None and saving.seconds_per_step[1] == pytest.approx(0.05 * 1.8)


def test_forms_share_the_time_by_their_samples() -> None:
    other = ComposedLines(SCRIPT, 80, "loss", "softmax", 20)
    finding = found("CMP026", cmp026(0.2, more=(other,)))
    assert [fix.where for fix in finding.fixes] == [Where(SCRIPT, 57), Where(SCRIPT, 80)]
    assert "F.layer_norm" in finding.fixes[0].title and "torch.softmax" in finding.fixes[1].title
    assert [evidence.value for evidence in finding.evidence] == [0.2, 80.0, 20.0]


def test_a_librarys_operation_is_chosen_by_its_option() -> None:
    line = ComposedLines(SCRIPT, 57, "forward", "gelu_new", 80, {"file": "/job/model.py", "line": 12})
    fix = found("CMP026", cmp026(composed_lines=(line,))).fixes[0]
    assert fix.where == Where("/job/model.py", 12) and 'activation_function="gelu_pytorch_tanh"' in fix.change


@pytest.mark.parametrize("form", ["product with one-hot rows", "layer on one-hot rows"])
def test_a_product_s_part_of_the_backward_pass_is_not_among_the_elementwise_nodes(form: ComposedForm) -> None:
    """0.2 s a step: at best the whole of it and 0.6 as much behind it, at worst 0.7 of it and of half of that."""
    saving = found("CMP026", cmp026(0.2, form=form, elementary=0.0)).saving
    assert saving is not None
    assert saving.seconds_per_step == pytest.approx((0.7 * (0.2 + 0.06), 0.2 + 0.12))
