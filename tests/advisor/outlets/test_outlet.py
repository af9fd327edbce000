"""Where a package of the extra is missing, the option that needs it is refused."""

from __future__ import annotations

import sys

import pytest

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.outlets.outlet import check_installed


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed("--metrics-file", "json")
    for module in ("prometheus_client", "no_such_package.part"):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UsageError, match=f"--metrics-file needs {module}, which is not installed"):
            check_installed("--metrics-file", module)
