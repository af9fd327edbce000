"""Checks `compare` on runs of the same job: it must say `same` for at least 19 of 20 pairs.

PYTHONPATH=. python tests/bench/same.py [SCENARIO ...] [--rounds 5] [--markdown FILE]   jobs of samples/faults, each once a round
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_results import machine
from bench_tables import grid
from samples.faults.catalogue import SCENARIOS
from samples.faults.observe import observe
from samples.faults.scenario import Conditions, Scenario

from rn50_advisor.advisor.model.documents.comparison import Pair
from rn50_advisor.advisor.run_comparison import Run, compare, load

ROOT = Path(__file__).resolve().parents[2]
JOBS = (
    "healthy-two-ranks",
    "healthy-resnet18",
    "healthy-vit-spawned",
    "healthy-perceptron-accumulating",
    "healthy-clipping",
)
LEAST_SAME = 0.95


@dataclass(frozen=True, slots=True)
class Repeated:
    """Pairs of one job's runs: each run and the one of the round before."""

    job: str
    pairs: tuple[Pair, ...]

    @property
    def same(self) -> int:
        return sum(pair.change == "same" for pair in self.pairs)

    @property
    def row(self) -> tuple[str, ...]:
        speeds = [pair.speed for pair in self.pairs if pair.speed]
        apart = ", ".join(f"{speed.value:.2f} ({speed.lo:.2f} … {speed.hi:.2f})" for speed in speeds)
        return self.job, f"{self.same} of {len(self.pairs)}", apart


def repeated(job: str, runs: Sequence[Run]) -> Repeated:
    pairs = (compare(two).pairs[0] for two in itertools.pairwise(runs))
    return Repeated(job, tuple(pairs))


def run_once(scenario: Scenario, number: int) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        seen = observe(scenario.job, Conditions(), Path(folder) / "job")
    return load(f"{scenario.name} {number}", seen.recording, place=number)


def markdown(results: Sequence[Repeated]) -> str:
    where = machine()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    same, pairs = sum(each.same for each in results), sum(len(each.pairs) for each in results)
    parts = [
        "# What `compare` says of runs of one and the same job",
        "Made by `make same`; run it again instead of editing this.",
        f"{where['date']}, commit {commit or 'unknown'}: {where['cores']} cores, {where['memory_gib']} GiB, "
        f"Python {where['python']}, torch {where['torch']}, Linux {where['kernel']}.",
        f"{same} of {pairs} pairs are called the same. Jobs ran in turns; each run is held against that of the round before.",
        grid(("job", "same", "speed of the later over the earlier run (95 %)"), [each.row for each in results]),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=JOBS, metavar="SCENARIO")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    told = parser.parse_args()
    known = {scenario.name: scenario for scenario in SCENARIOS if not scenario.fixtures}
    if unknown := [name for name in told.jobs if name not in known]:
        parser.error(f"no scenario without fixtures: {', '.join(unknown)}")
    runs: dict[str, list[Run]] = {name: [] for name in told.jobs}
    for number in range(told.rounds):
        for name in told.jobs:
            runs[name].append(run_once(known[name], number))
            print(f"round {number + 1}: {name}", flush=True)
    results = [repeated(name, made) for name, made in runs.items()]
    text = markdown(results)
    print(text)
    if told.markdown:
        told.markdown.write_text(text)
    pairs = sum(len(each.pairs) for each in results)
    sys.exit(0 if sum(each.same for each in results) >= LEAST_SAME * pairs else 1)


if __name__ == "__main__":
    main()
