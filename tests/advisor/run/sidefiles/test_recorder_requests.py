"""What the agent asks recorders for is found by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.sidefiles.recorder_requests import allow, try_out
from rn50_advisor.probes.rank.install import _trial
from rn50_advisor.probes.rank.side_files import TRIAL_REQUEST
from rn50_advisor.probes.rank.workers.sample_profiles import (
    ProfileSchedule,
)

pytestmark = pytest.mark.torch


def test_the_advisor_says_what_is_allowed_where_looks_read_it(tmp_path: Path) -> None:
    allow(tmp_path, 0.05)
    assert ProfileSchedule(str(tmp_path))._budget == 0.05


def test_a_trial_is_loaded_where_it_was_requested_and_nowhere_else(tmp_path: Path) -> None:
    assert _trial(str(tmp_path)) is None
    try_out(tmp_path, {"changes": [], "live": None})
    assert json.loads((tmp_path / TRIAL_REQUEST).read_text()) == {"changes": [], "live": None}
    kind = _trial(str(tmp_path))
    assert kind is not None and kind.__name__ == "RankTrial"
