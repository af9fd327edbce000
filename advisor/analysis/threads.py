"""How many threads each rank computes with, and how many of them stand in line for a core."""

from __future__ import annotations

from advisor.analysis.host import Window, process_by_rank


def thread_values(window: Window) -> dict[tuple[str, str], float]:
    """Values of each rank; what was not seen is absent."""
    found: dict[tuple[str, str], float] = {}
    for rank, process in process_by_rank(window.recording.processes).items():
        threads = window.recording.facts.get(process.pid, {}).get("threads")
        waiting = window.rate("proc.threads_delay_s", f"pid:{process.pid}")
        if isinstance(threads, int) and threads > 0:
            found["threads.intra_op", f"rank:{rank}"] = float(threads)
        if waiting is not None:
            found["threads.waiting", f"rank:{rank}"] = waiting  # seconds of waiting per second
    return found
