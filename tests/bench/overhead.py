"""What the advisor costs a job: the same job with and without it, in turns, as paired ratios.

    python tests/bench/overhead.py [--pairs 5] [--quick]

Prints per job the median step without and with, the difference in microseconds, its share with a 95 % interval (bootstrap over the pairs),
what the recorder says of itself, the agent's share of a core; then what start-up costs. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
ADVISOR = [str(Path(sys.executable).parent / "rn50-advisor"), "run", "--no-tui"]
JOBS = (  # name, arguments, steps
    ("MLP, about 0.5 ms", ["--model", "mlp128"], 6000),
    ("MLP, about 1 ms", ["--model", "mlp512"], 3000),
    ("MLP, about 5 ms", ["--model", "mlp1536"], 800),
    ("MLP, about 5 ms, 1 worker", ["--model", "mlp1536", "--workers", "1"], 800),
    ("ResNet50, 8 x 64 px", ["--model", "resnet50"], 30),
)


def steps(arguments: list[str], *, watched: bool, folder: Path, name: str) -> tuple[float, dict[str, float]]:
    """(median step in seconds, the advisor's own account of itself)"""
    job = [sys.executable, str(HERE / "steps.py"), *arguments]
    report = folder / f"{name}.json"
    command = [*ADVISOR, "--run-dir", str(folder), "--report", str(report), "--", *job] if watched else job
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    took = json.loads(done.stdout.strip().splitlines()[-1])
    own = json.loads(report.read_text())["overhead"] if watched else {}
    return statistics.median(took) / 1e9, own


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % of the bootstrapped medians."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1950]


def compare(pairs: int, scale: float, console: Console) -> Table:
    table = Table("job", "step without", "with", "more", "share (95 %)", "recorder says", "agent")
    with tempfile.TemporaryDirectory() as place:
        for name, arguments, count in JOBS:
            rows = []
            for pair in range(pairs):
                full = [*arguments, "--steps", str(max(20, int(count * scale)))]
                order = (False, True) if pair % 2 == 0 else (True, False)
                seen = {watched: steps(full, watched=watched, folder=Path(place), name="report") for watched in order}
                rows.append((seen[False][0], seen[True][0], seen[True][1]))
                console.print(f"  {name}: pair {pair + 1} of {pairs}", style="dim")
            alone, watched = (statistics.median(row[i] for row in rows) for i in (0, 1))
            ratios = [b / a for a, b, _ in rows]
            low, high = interval(ratios)
            more = statistics.median(b - a for a, b, _ in rows) * 1e6
            own = statistics.median(row[2]["us_per_step"] for row in rows)
            agent = statistics.median(row[2]["agent_cpu_share"] for row in rows)
            share = f"{100 * (statistics.median(ratios) - 1):+.2f} % ({100 * (low - 1):+.2f} … {100 * (high - 1):+.2f})"
            table.add_row(
                name,
                f"{1e3 * alone:.3f} ms",
                f"{1e3 * watched:.3f} ms",
                f"{more:+.1f} µs",
                share,
                f"{own:.1f} µs",
                f"{agent:.2%}",
            )
    return table


def start_up(pairs: int) -> Table:
    """Wall time of whole processes, median of the pairs' differences."""
    table = Table("start-up", "without", "with", "more")
    for name, code in (("python -c pass", "pass"), ("python -c 'import torch'", "import torch")):
        command = [sys.executable, "-c", code]
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(pairs):
                alone = _wall(command, {})
                inject = str(HERE.parents[1] / "probes" / "rank" / "inject")
                rows.append((alone, _wall(command, {"RN50_ADVISOR_DIR": folder, "PYTHONPATH": inject})))
        table.add_row(name + ", the recorder alone", *_cells(rows))
        with tempfile.TemporaryDirectory() as folder:
            whole = [
                (_wall(command, {}), _wall([*ADVISOR, "--run-dir", folder, "--", *command], {})) for _ in range(pairs)
            ]
        table.add_row(name + ", under `run` to its summary", *_cells(whole))
    return table


def _wall(command: list[str], more: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **more})
    return time.perf_counter() - began


def _cells(rows: list[tuple[float, float]]) -> tuple[str, str, str]:
    alone, watched = (statistics.median(row[i] for row in rows) for i in (0, 1))
    return (
        f"{1e3 * alone:.0f} ms",
        f"{1e3 * watched:.0f} ms",
        f"{1e3 * statistics.median(b - a for a, b in rows):+.0f} ms",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps, two pairs: does it run at all")
    options = parser.parse_args()
    console = Console(stderr=True)
    pairs, scale = (2, 0.2) if options.quick else (options.pairs, 1.0)
    out = Console(width=120)  # also in a pipe
    out.print(compare(pairs, scale, console))
    out.print(start_up(pairs))


if __name__ == "__main__":
    main()
