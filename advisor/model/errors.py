"""All errors that a user can meet. Each has the exit code of the CLI and a hint at what to do."""

from __future__ import annotations


class AdvisorError(Exception):
    """An error that the user can act on. `message` says what happened, `hint` what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AdvisorError):
    """The command line is invalid."""

    exit_code = 64  # EX_USAGE of sysexits.h


class CommandNotFound(AdvisorError):
    """The job's command does not exist (127, as in a shell)."""

    exit_code = 127


class CommandNotExecutable(AdvisorError):
    """The job's command exists but cannot be executed (126, as in a shell)."""

    exit_code = 126


class NotARun(AdvisorError):
    """The path holds no readable run: it is absent, another file, damaged, or from a newer advisor."""

    exit_code = 2


class TrackerRefused(AdvisorError):
    """An experiment tracker did not take the report: no answer, no permission, no such run."""

    exit_code = 2


class NotATriage(AdvisorError):
    """The file holds no readable result of `triage`."""

    exit_code = 2


class ConfigError(AdvisorError):
    """The configuration names a threshold that does not exist or gives it a value of the wrong type."""

    exit_code = 78  # EX_CONFIG of sysexits.h


class Regressed(AdvisorError):
    """`compare --max-regression`: a run is certainly slower than allowed."""

    exit_code = 3


class NotComparable(AdvisorError):
    """`compare --max-regression`: a run could not be compared, so nothing is proved either way."""

    exit_code = 4
