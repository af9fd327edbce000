"""The settings of a recording and its place, made by the launcher and sent to the recording process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.run.run_options import RunOptions


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """`run_folder` None: nothing is recorded; `ring_folder` None: no recorder in the job."""

    argv: tuple[str, ...]
    run_folder: Path | None
    name: str
    options: RunOptions
    ring_folder: Path | None
    began_ns: int
    began_unix_s: float
    launcher_pid: int
    printed_before: tuple[int, int] = (
        0,
        0,
    )  # bytes that stood in the launcher's stdout and stderr, where they are files
    output_kept: bool = False  # in the run's folder, since the job runs behind a screen

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "run_folder": self.run_folder and str(self.run_folder),
            "ring_folder": self.ring_folder and str(self.ring_folder),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RecordingPlan:
        run_folder, ring_folder = document["run_folder"], document["ring_folder"]
        return cls(
            argv=tuple(document["argv"]),
            run_folder=Path(run_folder) if run_folder is not None else None,
            name=document["name"],
            options=RunOptions(**document["options"]),
            ring_folder=Path(ring_folder) if ring_folder is not None else None,
            began_ns=document["began_ns"],
            began_unix_s=document["began_unix_s"],
            launcher_pid=document["launcher_pid"],
            printed_before=tuple(document["printed_before"]),
            output_kept=document["output_kept"],
        )
