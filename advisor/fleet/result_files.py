"""Finds results in files and folders and reads the parts that a fleet needs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.fleet.machine_readings import MachineResult, of_benchmark, of_report, of_triage
from rn50_advisor.advisor.model import report
from rn50_advisor.advisor.model.documents import benchmark
from rn50_advisor.advisor.model.documents.ranked_fleet import Unread
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.store.schema import FILE_NAME

_BENCH_FILE = "bench.json"  # its folder also holds the recordings of its settings, which are not results of their own
_BYTES_MAX = 20_000_000
_DEPTH_MAX = 5


def read_all(places: Sequence[Path], config: Config | None = None) -> tuple[list[MachineResult], list[Unread]]:
    """Returns all results, and the files that could not be read with the reason. Ignores foreign files unless named in `places`."""
    results: list[MachineResult] = []
    unread: list[Unread] = []
    for place in places:
        for path in _candidates(place):
            try:
                found = _read(path, config)
            except AdvisorError as error:
                unread.append(Unread(str(path), error.message))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                unread.append(Unread(str(path), f"{type(error).__name__}: {error}"))
            else:
                if found is not None:
                    results.append(found)
                elif path == place:
                    unread.append(Unread(str(path), "no result of triage, bench or run"))
    return results, unread


def _candidates(place: Path) -> Iterator[Path]:
    """Yields files and run folders that may hold a result; skips the recordings in a benchmark's folder."""
    if not place.exists():
        yield place
        return
    if place.is_file():
        yield place
        return
    depth = len(place.parts)
    for folder, folders, files in os.walk(place):
        here = Path(folder)
        folders.sort()
        if FILE_NAME in files:
            folders.clear()
            yield here
            continue
        if _BENCH_FILE in files or len(here.parts) - depth >= _DEPTH_MAX:
            folders.clear()
        yield from (here / name for name in sorted(files) if name.endswith(".json"))


def _read(path: Path, config: Config | None) -> MachineResult | None:
    """Returns the result in a file; None if the file is not one of ours."""
    if path.suffix != ".json":
        return _run(path, config)  # a folder, its file, or a bundle
    text = path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= _BYTES_MAX else ""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    match document:
        case {"schema": "rn50-advisor/triage/1"}:
            return of_triage(document, str(path), _named_by(path))
        case {"schema": benchmark.SCHEMA}:
            return of_benchmark(benchmark.parse_benchmark(text), str(path))
        case {"schema": report.SCHEMA}:
            return of_report(document, str(path), _named_by(path))
    return None


def _run(path: Path, config: Config | None) -> MachineResult:
    """Diagnoses a recording again. Imports are local, since a fleet of JSON files needs no analysis."""
    from rn50_advisor.advisor.store.run_reader import read_recording  # noqa: PLC0415
    from rn50_advisor.advisor.verdict.diagnose import diagnose  # noqa: PLC0415

    document: dict[str, Any] = diagnose(read_recording(path), config).as_json()
    return of_report(document, str(path), path.name, kind="run")


def _named_by(path: Path) -> str:
    """Returns a name for a result without a host: from `node7.json`, or the folder of `node7/triage.json`."""
    return path.parent.name if path.stem in ("triage", "report", "bench", "result") and path.parent.name else path.stem
