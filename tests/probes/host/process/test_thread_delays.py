"""How long threads waited for a core."""

from __future__ import annotations

from pathlib import Path

from probe_trees import write_tree
from rn50_advisor.probes.host.process.thread_delays import PERIOD_NS_PER_THREAD, ThreadDelays


def delays(root: Path, **threads: int) -> None:
    """Seconds that each thread of process 7 has waited for a core."""
    for thread in (root / "proc/7/task").glob("*"):
        (thread / "schedstat").unlink()
        thread.rmdir()
    write_tree(root, {f"proc/7/task/{name}/schedstat": f"9 {s * 10**9} 7\n" for name, s in threads.items()})


def test_waiting_is_summed_over_threads_and_includes_ended_ones(tmp_path: Path) -> None:
    reader = ThreadDelays(tmp_path)
    later = iter(range(0, 10**12, 10**10))
    delays(tmp_path, t7=1, t8=5)
    assert reader.read(next(later), 7, 2) == 6.0
    delays(tmp_path, t7=2, t9=3)
    assert reader.read(next(later), 7, 2) == 10.0
    delays(tmp_path, t7=2, t9=1)  # the number of an ended thread, given to a new one
    assert reader.read(next(later), 7, 2) == 11.0
    assert reader.read(next(later), 99, 2) is None
    reader.prune([])
    assert reader.read(next(later), 7, 2) == 3.0


def test_many_threads_are_read_seldom(tmp_path: Path) -> None:
    delays(tmp_path, t7=1)
    reader = ThreadDelays(tmp_path)
    assert reader.read(0, 7, 200) == 1.0
    assert reader.read(200 * PERIOD_NS_PER_THREAD - 1, 7, 200) is None
    assert reader.read(200 * PERIOD_NS_PER_THREAD, 7, 200) == 1.0
