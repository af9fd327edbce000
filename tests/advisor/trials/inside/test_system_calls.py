"""Flags of mounts, and errors of calls."""

from __future__ import annotations

import errno
import platform

import pytest

from rn50_advisor.advisor.trials.inside import system_calls
from rn50_advisor.advisor.trials.inside.system_calls import MS_NODEV, MS_NOEXEC, MS_RDONLY, flags_of


def test_flags_are_those_of_options_that_change_what_a_job_may_do() -> None:
    assert flags_of(frozenset({"ro", "nodev", "noexec", "size=4k"})) == MS_RDONLY | MS_NODEV | MS_NOEXEC
    assert flags_of(frozenset()) == 0


def test_a_call_that_fails_says_why_and_where() -> None:
    with pytest.raises(OSError) as failed:
        system_calls.mount("none", "/no/such/place", "tmpfs")
    assert failed.value.errno in (errno.ENOENT, errno.EPERM)
    assert failed.value.filename == "/no/such/place"


def test_a_call_without_a_known_number_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    with pytest.raises(OSError, match="abacus"):
        system_calls.pivot_root(".", ".")
