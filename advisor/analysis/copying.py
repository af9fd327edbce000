"""What crosses from the host to the devices in each step."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.analysis.host import process_by_rank
from advisor.analysis.steady import RankSteps
from advisor.core.recording import Recording


def copy_values(
    recording: Recording, steady: Mapping[int, RankSteps], missing: dict[str, str]
) -> dict[tuple[str, str], float]:
    """`copy.float_pictures_mb` of every rank whose batch was looked at; 0 where its pictures are not bytes in disguise."""
    found: dict[tuple[str, str], float] = {}
    processes = process_by_rank(recording.processes)
    for rank, steps in steady.items():
        facts = recording.facts.get(processes[rank].pid, {}) if rank in processes else {}
        pictures = facts.get("pictures")
        if not facts.get("cuda"):
            missing["copy.float_pictures_mb"] = "no CUDA device: nothing is copied"
        elif not pictures:
            missing["copy.float_pictures_mb"] = "no batch of pictures was seen"
        elif pictures["device"] == "cpu" and pictures["dtype"] != "uint8" and pictures["from_bytes"] is None:
            missing["copy.float_pictures_mb"] = (
                "whether the pictures were bytes could not be told from the batches looked at"
            )
        else:
            crosses = pictures["device"] == "cpu" and bool(pictures["from_bytes"])
            batches = max(steps.per_step("micro_batches"), 1.0)
            found["copy.float_pictures_mb", f"rank:{rank}"] = crosses * batches * pictures["bytes"] / 1e6
    return found
