"""rn50-advisor: runs jobs, keeps runs, explains runs, shows runs."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rn50-advisor")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
