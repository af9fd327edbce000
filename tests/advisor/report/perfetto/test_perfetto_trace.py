"""Whole traces: what Perfetto's own trace processor finds in them, and what stands in their metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import trace_processor
from rn50_advisor.advisor.commands.demo.demo import RUN as DEMO
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.report.perfetto import trace_of
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import FLAG_TAIL
from traced_runs import STEPS, trace, two_busy_ranks

SAMPLES = Path(__file__).parents[4] / "samples" / "runs"
RUNS = {"demo": DEMO, **{name: SAMPLES / f"{name}.tar.gz" for name in ("8xH100", "lost", "MIG")}}
BY_RANK = "JOIN thread_track t ON s.track_id = t.id JOIN thread USING (utid) JOIN process p USING (upid)"
QUERIES = {
    "errors": "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
    "dropped": "SELECT name, value FROM stats WHERE value > 0 AND (name LIKE '%drop%' OR name LIKE '%misplaced%' OR name LIKE '%fail%')",
    "ranks": "SELECT pid, name FROM process WHERE name LIKE 'rank %' ORDER BY upid",
    "steps": f"SELECT p.name AS rank, SUM(EXTRACT_ARG(s.arg_set_id, 'args.steps')) AS steps FROM slice s {BY_RANK} "
    "WHERE s.category = 'step' GROUP BY p.upid ORDER BY p.upid",
    "outside": "SELECT c.name FROM slice c LEFT JOIN slice s ON c.parent_id = s.id WHERE c.category = 'phase' AND c.name != 'starting up' "
    "AND (s.category NOT IN ('step', 'after', 'phase') OR c.ts < s.ts OR c.ts + c.dur > s.ts + s.dur)",
    "too long": "SELECT s.name FROM slice s JOIN slice c ON c.parent_id = s.id WHERE s.category = 'step' GROUP BY s.id "
    "HAVING SUM(c.dur) > s.dur",
    "slices": "SELECT COUNT(*) AS n FROM slice",
    "counters": "SELECT DISTINCT p.name AS process, t.name AS counter FROM process_counter_track t JOIN process p USING (upid)",
    "values": "SELECT COUNT(*) AS n FROM counter",
    "findings": "SELECT EXTRACT_ARG(arg_set_id, 'args.rule') AS rule, dur FROM slice WHERE category = 'finding'",
    "categories": "SELECT category, COUNT(*) AS n FROM slice GROUP BY category",
}


def recorded(name: str) -> Recording:
    return two_busy_ranks() if name == "made up" else read_job(RUNS[name])


@pytest.mark.parametrize("name", [*RUNS, "made up"])
def test_perfettos_own_trace_processor_reads_all_of_it(name: str) -> None:
    if why := trace_processor.missing():
        pytest.skip(why)
    made = recorded(name)
    report = diagnose(made)
    content = trace(made, report)
    found = trace_processor.asked(content, QUERIES)
    for nothing in ("errors", "dropped", "outside", "too long"):
        assert found[nothing] == [], nothing
    ranks = sorted(made.steps)
    host = made.meta.host
    assert [row["name"] for row in found["ranks"]] == [f"rank {rank} · {host}" for rank in ranks]
    own = [rows[(rows["flags"] & FLAG_TAIL) == 0]["count"].sum() for _, rows in sorted(made.steps.items())]
    assert [row["steps"] for row in found["steps"]] == own
    events = json.loads(content)["traceEvents"]
    assert found["slices"][0]["n"] == sum(event["ph"] in "Xi" for event in events)
    assert found["values"][0]["n"] == sum(event["ph"] == "C" for event in events)
    assert {row["rule"] for row in found["findings"]} == {finding.rule for finding in report.findings}
    counters = {(row["process"], row["counter"]) for row in found["counters"]}
    assert (f"host {host}", "CPU busy (cores)") in counters
    assert ("run · " + made.meta.name, "throughput (samples/s)") in counters
    gpus = {process for process, counter in counters if counter == "GPU utilisation (%)"}
    assert len(gpus) == len({scope for metric, scope in made.samples if metric == "gpu.util_pct"})
    categories = {row["category"]: row["n"] for row in found["categories"]}
    if name == "made up":
        assert categories["worker"] == 20
        assert categories["stall"] == 2
        assert categories["collective"] == 2 * STEPS + 2 * STEPS  # called by rank 0, and both ranks' exchanges
    if name == "8xH100":
        assert categories["gpu step"] == sum(map(len, made.gpu_steps.values()))


def test_the_metadata_says_which_run_it_is_and_what_is_left_out() -> None:
    made = two_busy_ranks()
    _, about = trace_of(diagnose(made), made)
    assert about["schema"] == "rn50-advisor/perfetto/1"
    assert (about["run"], about["command"], about["ranks"]) == ("job", ["python", "train.py"], 2)
    assert about["started"] == "2023-11-14T22:13:20.000+00:00"
    assert any("ECC" in words for words in about["left out"])
    assert isinstance(about["not measured"], list)


def test_a_file_that_cannot_be_drawn_is_no_run() -> None:
    made = two_busy_ranks()
    report = diagnose(made)
    broken = Recording(meta=made.meta, steps={0: made.steps[0][["step"]]})
    with pytest.raises(NotARun):
        trace_of(report, broken)
