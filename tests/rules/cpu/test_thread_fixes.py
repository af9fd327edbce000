"""The place that set the number of threads, in a fix."""

from __future__ import annotations

from typing import Any

from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.rules.cpu.thread_fixes import thread_fix, thread_setting
from rule_cases import job, rank

SETTING: Any = {"threads": 1, "by_import": True, "file": "/job/vad.py", "line": 4}


def test_the_setting_is_the_one_in_use() -> None:
    a = job({0: rank()}, facts={"0": {"threads_set": SETTING}})
    assert thread_setting(a, 1.0) == SETTING
    assert thread_setting(a, 2.0) is None, "something else has set another number since"
    assert thread_setting(job({0: rank()}, facts={}), 1.0) is None


def test_without_a_call_the_fix_may_be_anywhere() -> None:
    fix = thread_fix(4, None, "this or that")
    assert (fix.title, fix.where) == ("this or that", None)


def test_the_jobs_own_call_is_replaced() -> None:
    fix = thread_fix(4, SETTING, "")
    assert fix.where == Where("/job/vad.py", 4)
    assert fix.title == "torch.set_num_threads(4) instead of 1"
    assert fix.change == "torch.set_num_threads(4)"


def test_that_of_a_library_is_followed_by_another() -> None:
    through = {"file": "/env/site-packages/silero_vad/utils.py", "line": 12}
    fix = thread_fix(4, {**SETTING, "through": through}, "")
    assert "after this line" in fix.title and "silero_vad/utils.py:12" in fix.title
