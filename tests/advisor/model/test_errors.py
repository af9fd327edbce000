"""Errors that a user can meet: what they say, and the exit code that the program ends with."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model import errors
from rn50_advisor.advisor.model.errors import AdvisorError

CODES = {
    "AdvisorError": 1,
    "UsageError": 64,
    "CommandNotFound": 127,
    "CommandNotExecutable": 126,
}
ALL = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, AdvisorError)]


@pytest.mark.parametrize("kind", ALL)
def test_an_error_carries_its_message_and_hint(kind: type[AdvisorError]) -> None:
    error = kind("no such run", "see `list`")
    assert (str(error), error.message, error.hint) == ("no such run", "no such run", "see `list`")
    assert kind("no such run").hint == ""
    assert 1 <= error.exit_code < 128 and error.exit_code == CODES.get(kind.__name__, error.exit_code)


def test_shells_know_the_exit_codes_of_commands_that_cannot_be_run() -> None:
    assert {kind.__name__: kind.exit_code for kind in ALL if kind.__name__ in CODES} == CODES
