"""What the agent asks recorders for is found by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.run.sidefiles.recorder_requests import allow
from rn50_advisor.probes.rank.workers.sample_profiles import (
    ProfileSchedule,
)

pytestmark = pytest.mark.torch


def test_the_advisor_says_what_is_allowed_where_looks_read_it(tmp_path: Path) -> None:
    allow(tmp_path, 0.05)
    assert ProfileSchedule(str(tmp_path))._budget == 0.05
