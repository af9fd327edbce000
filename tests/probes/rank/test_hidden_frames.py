"""Wrappers between the job's frames: what passes through them, and what is seen of them."""

from __future__ import annotations

from typing import Any

from rn50_advisor.probes.rank.hidden_frames import passed_over


def test_code_within_code_has_the_name_that_is_passed_over() -> None:
    def outer() -> Any:
        return lambda: [n for n in (1,)]  # noqa: C416

    first = outer.__code__.co_filename
    renamed = passed_over(outer.__code__)
    inner = next(each for each in renamed.co_consts if hasattr(each, "co_filename"))
    for code in (renamed, inner):
        assert (
            code.co_filename.startswith(first) and "importlib" in code.co_filename and "_bootstrap" in code.co_filename
        )
    assert passed_over(renamed) is renamed
