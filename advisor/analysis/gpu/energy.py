"""What the GPUs that train draw, and what a sample costs of it."""

from __future__ import annotations

from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu

Values = dict[tuple[str, str], float]


def energy_values(window: Window, gpus: tuple[Gpu, ...], samples_per_s: float | None) -> Values:
    """Nothing unless it is known of each GPU that trains; of a part of one (MIG) it is not, nor where a rank's GPU is unknown."""
    recording, used = window.recording, [gpu for gpu in gpus if gpu.ranks and not gpu.mig]
    ranks = {
        rank for rank, p in process_by_rank(recording.processes).items() if recording.facts.get(p.pid, {}).get("cuda")
    }
    watts = [_watts(window, f"gpu:{gpu.index}") for gpu in used]
    known = [each for each in watts if each is not None]
    if not known or len(known) < len(watts) or ranks - {rank for gpu in used for rank in gpu.ranks}:
        return {}
    values = {("gpu.watts", JOB): sum(known)}
    if samples_per_s:
        values["gpu.joules_per_sample", JOB] = sum(known) / samples_per_s
    return values


def _watts(window: Window, scope: str) -> float | None:
    """By the counter of its energy; GPUs before Volta have none, and tell their power once a second."""
    counted = window.rate("gpu.energy_j", scope)
    return window.level("gpu.power_w", scope) if counted is None else counted
