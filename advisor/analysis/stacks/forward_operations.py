"""Measures how many operations a step has and how long one takes, and finds the user's line in which the forward pass spends its time.

The recorder counts the nodes of autograd's graph in the steps whose CPU clocks it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.stacks.hot_lines import place
from rn50_advisor.advisor.analysis.stacks.stack_profiles import in_forward, inner, profiles_by_rank, user_rows
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_OPERATION_S, STEP_OPERATIONS
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_COUNTED_MIN = 10  # steps
_MOST_SHARE = 0.6  # of the samples in the forward pass: lines of a cell that is called in a loop have less each


def operation_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Operations per step, and CPU seconds for each, of ranks whose operations were counted."""
    found, processes = Measured(), process_by_rank(recording.processes)
    for rank in steady:
        facts = recording.facts.get(processes[rank].pid, RankFacts()) if rank in processes else RankFacts()
        counted = facts.get("operations")
        if counted is None or counted["steps"] < _COUNTED_MIN:
            why = "too few steps were counted, or this torch does not number the nodes of its graph"
            found.missing[STEP_OPERATIONS, rank] = found.missing[STEP_OPERATION_S, rank] = why
            continue
        found[STEP_OPERATIONS, rank] = counted["nodes"] / counted["steps"]
        found[STEP_OPERATION_S, rank] = counted["low_ns"] / 1e9
    return found


def forward_lines(recording: Recording) -> tuple[HotLine, ...]:
    """For each rank's profile the innermost of the user's lines that has most of the samples in the forward pass."""
    found = []
    for _, profile in profiles_by_rank(recording):
        lines, depths, leaves = Counter[tuple[str, int, str]](), Counter[tuple[str, int, str]](), {}
        whole = 0
        for row in (row for row in user_rows(profile) if in_forward(row["frames"])):
            whole += row["count"]
            users = [frame for frame in reversed(inner(row["frames"])) if is_user_file(frame["file"])]
            of_row = {(frame["file"], frame["line"], frame["function"]): depth for depth, frame in enumerate(users)}
            for key, depth in of_row.items():
                lines[key] += row["count"]
                depths[key] = max(depths[key], depth)
                leaves[key] = place(row["frames"][0])
        often = [key for key, count in lines.items() if count >= _MOST_SHARE * whole]
        if often:
            key = max(often, key=lambda key: depths[key])
            found.append(HotLine(*key, leaves[key], lines[key], lines[key] / whole, io=False))
    return tuple(sorted(found, key=lambda line: -line.samples))
