"""The driver, as it is loaded, and its errors in words."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.probes.host.gpu.nvml import open_driver


def test_bindings_that_are_too_old_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    monkeypatch.setattr(sys.modules["pynvml"], "__file__", "/env/pynvml/__init__.py", raising=False)
    gap = open_driver()
    assert isinstance(gap, ProbeGap) and gap.metric == "gpu.*"
    assert "/env/pynvml/__init__.py" in gap.reason and "nvidia-ml-py" in gap.hint
