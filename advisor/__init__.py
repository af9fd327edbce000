"""rn50-advisor: runs jobs, keeps runs, explains runs, shows runs."""


def __getattr__(name: str) -> str:
    """Reads `__version__` when it is first asked for: the job waits for what the launcher imports."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - half of what the command line takes to import

    try:
        found = version("rn50-advisor")
    except PackageNotFoundError:  # run from a source tree that was never installed
        found = "0+unknown"
    globals()["__version__"] = found
    return found
