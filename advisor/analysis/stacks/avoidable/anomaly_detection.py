"""Measures what autograd's anomaly detection does in a step on a CPU: it formats a traceback for each operation of the forward pass, which
stack samples of the training thread show, and searches all gradients of the backward pass for NaN, whose elements the recorder counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.loop_lines import samples_by_rank
from rn50_advisor.advisor.analysis.stacks.stack_profiles import LINE_SAMPLES_MIN, profiles_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_SEARCHED_ELEMENTS, STEP_TRACEBACKS_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.documents.rank_documents import RankFacts

_FORMATTING = ("/traceback.py", "/linecache.py")


def anomaly_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds in tracebacks, and elements searched, per step of each rank on a CPU."""
    found, known, on_gpus = Measured(), facts_by_rank(recording), ranks_on_gpus(recording)
    profiles = list(profiles_by_rank(recording))
    samples = samples_by_rank((rank, profile["looks"]) for rank, profile in profiles)
    # torch calls the formatter itself, often with no frame of the user's code in the part of the stack that is kept
    rows = ((rank, row) for rank, profile in profiles for row in profile["stacks"] if _formats(row["frames"]))
    formats = samples_by_rank((rank, row["count"]) for rank, row in rows)
    for rank, steps in steady.items():
        if rank in on_gpus or samples[rank] < LINE_SAMPLES_MIN:
            why = "on a GPU" if rank in on_gpus else "no profile of the training thread was taken"
            found.missing[STEP_TRACEBACKS_S, rank] = why
        else:
            seen_s = formats[rank] / samples[rank] * steps.per_step_s
            found[STEP_TRACEBACKS_S, rank] = min(steps.per_step("forward"), seen_s)
        timed = known.get(rank, RankFacts()).get("backward_nodes")
        if timed is None or "searched" not in timed:
            why = "on a GPU" if rank in on_gpus else "no backward pass was looked at node by node"
            found.missing[STEP_SEARCHED_ELEMENTS, rank] = why
        else:
            passes = max(1.0, steps.per_step("micro_batches"))
            found[STEP_SEARCHED_ELEMENTS, rank] = timed["searched"] / timed["passes"] * passes
    return found


def _formats(frames: list[StackFrame]) -> bool:
    return any(frame["file"].endswith(_FORMATTING) for frame in frames)
