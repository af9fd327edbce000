"""What DistributedDataParallel's searches for unused parameters found."""

from __future__ import annotations

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.recording import Recording


def search_values(recording: Recording, missing: dict[str, str]) -> dict[tuple[str, str], float]:
    """Values of each rank; zero iterations where DDP does not search in each of them (a static graph is searched once)."""
    found: dict[tuple[str, str], float] = {}
    for rank, process in process_by_rank(recording.processes).items():
        models = recording.facts.get(process.pid, {}).get("ddp") or ()
        searching = [m for m in models if m.get("find_unused_parameters") and not m.get("static_graph")]
        if models:
            scope = f"rank:{rank}"
            found["ddp.searched", scope] = sum(float(m.get("searched_iterations", 0)) for m in searching)
            found["ddp.with_unused", scope] = sum(float(m.get("iterations_with_unused", 0)) for m in searching)
    if not found:
        missing["ddp.searched"] = missing["ddp.with_unused"] = "no DistributedDataParallel here"
    return found
