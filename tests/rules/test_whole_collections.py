"""Advice for calls that go through a whole collection."""

from __future__ import annotations

from typing import get_args

from rn50_advisor.probes.documents.code_places import CollectionWork
from rn50_advisor.rules.whole_collections import ADVICE


def test_each_kind_of_work_has_advice_that_goes_on_after_the_calls_name() -> None:
    assert set(ADVICE) == set(get_args(CollectionWork))
    assert all(advice.does.split()[0].endswith("s") and advice.fix and advice.change for advice in ADVICE.values())
