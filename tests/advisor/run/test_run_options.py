"""The options of a run by themselves."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.run.run_options import RunOptions


@pytest.mark.parametrize("option", ["metrics_file", "metrics_listen", "otlp", "notify"])
def test_each_way_out_needs_the_process_beside_the_job(option: str) -> None:
    assert RunOptions(**{option: "somewhere"}).has_outlets  # type: ignore[arg-type]
    assert not RunOptions().has_outlets


def test_an_address_that_may_hold_a_password_is_in_no_traceback() -> None:
    assert "s3cret" not in repr(RunOptions(otlp="http://user:s3cret@host", notify="https://host/s3cret"))
