"""Runs `rn50-advisor triage --quick` on this machine as it is and with one fault each; shows verdicts and durations.

python tests/bench/triages.py [CASE ...] [--json FILE [--runs N]] [--markdown FILE]   needs a quiet machine, root and a C compiler
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

from bench_results import machine
from bench_tables import NOTHING, grid

from rn50_advisor.advisor.model.documents.machine_triage import Triage, TriageState, parse_triage

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from samples.faults.fixtures import Burners, CpuQuota, SlowDisk, SmallSharedMemory
from samples.faults.scenario import CannotBeMade, Conditions, Fixture
from samples.gpus.machines import MACHINES

ROOT = Path(__file__).resolve().parents[2]
BUILD_DRIVER = ROOT / "tests/fake_driver/build.py"
CODES: Mapping[int, TriageState] = {0: "keep", 3: "fix", 4: "hand-back"}
MOST_S = 120.0  # what a quick triage promises
PENDING_ROW = ("gpu 5 field.144 1",)


@dataclass(frozen=True, slots=True)
class Case:
    """A machine. `told_by`: the check that must be outside its band; `gpus`: a machine of samples/gpus, played by the fake driver."""

    title: str
    verdict: TriageState
    told_by: str = ""
    fault: Fixture | None = None
    gpus: str = ""
    more: tuple[str, ...] = ()
    runs: int = 1


CASES: Mapping[str, Case] = {
    "clean": Case("as it is", "keep", runs=10),
    "quota": Case("a quota of 0.8 cores", "fix", "cpu.cores_allowed", CpuQuota(0.8)),
    "burners": Case("neighbours on all cores", "fix", "cpu.others_cores", Burners(len(os.sched_getaffinity(0)))),
    "slow-disk": Case("data on a disk of 4 MB/s", "fix", "disk.small_reads_per_s", SlowDisk(4_000_000, 400)),
    "small-shm": Case("64 MB of shared memory", "fix", "memory.shm_bytes", SmallSharedMemory(64)),
    "gpus": Case("eight sound A100", "keep", gpus="8xA100"),
    "degraded-link": Case("a GPU with 4 of 16 lanes", "hand-back", "gpu.1.pcie_link_gb_per_s", gpus="degraded-link"),
    "throttled": Case("a GPU throttled by heat", "hand-back", "gpu.3.throttled_share", gpus="throttled"),
    "pending-row": Case("a row to be remapped", "fix", "gpu.5.errors", gpus="8xH100", more=PENDING_ROW),
    "broken-nvlink": Case("8 of 12 NVLinks down", "hand-back", "gpu.6.nvlinks_active", gpus="broken-nvlink"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One triage of a case. `told`: the relevant check was outside its band."""

    case: str
    seconds: float
    verdict: TriageState
    reason: str
    told: bool


def seen(name: str, seconds: float, found: Triage) -> Seen:
    check = found.get(CASES[name].told_by)
    told = not CASES[name].told_by or (check is not None and check.state in ("low", "bad"))
    return Seen(name, seconds, found.verdict.state, found.verdict.reasons[0], told)


def run_once(name: str) -> Seen:
    """Runs one triage. Raises CannotBeMade if this machine lacks what the case needs."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as made:
        folder, output = Path(made), Path(made) / "triage.json"
        with (
            case.fault.hold(folder) if case.fault else nullcontext(Conditions()) as conditions,
            driver(case, folder) as variables,
        ):
            command = [
                *conditions.container,
                *conditions.prefix,
                sys.executable,
                "-m",
                "rn50_advisor.advisor.cli",
                "triage",
            ]
            command += ["--quick", "--python", sys.executable, "-o", str(output)]
            command += ["--data", conditions.values["disk"]] if "disk" in conditions.values else []
            began = perf_counter()
            done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, check=False)
            seconds = perf_counter() - began
        if done.returncode not in CODES:
            raise SystemExit(f"{name}: {done.stderr.decode(errors='replace')}")
        return seen(name, seconds, parse_triage(output.read_text()))


@contextmanager
def driver(case: Case, folder: Path) -> Iterator[Mapping[str, str]]:
    """Yields variables that load a fake driver and hide PyTorch, whose CUDA would find none of these GPUs."""
    if not case.gpus:
        yield {}
        return
    built = subprocess.run([sys.executable, BUILD_DRIVER, folder], capture_output=True, text=True, check=False)
    if built.returncode:
        raise CannotBeMade(f"the fake driver cannot be built: {built.stderr.strip().splitlines()[-1]}")
    hidden = folder / "hidden"
    hidden.mkdir()
    for package in ("torch", "torchvision"):
        (hidden / f"{package}.py").write_text("raise ImportError('hidden')\n")
    script = folder / "script"
    script.write_text("\n".join([*MACHINES[case.gpus](), *case.more]))
    yield {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_SCRIPT": str(script), "PYTHONPATH": str(hidden)}


def to_do(names: Sequence[str], had: Sequence[Seen]) -> Iterator[str]:
    """Yields the missing runs in the order of the cases, one name per run."""
    for name in names:
        yield from [name] * (CASES[name].runs - sum(one.case == name for one in had))


def as_expected(of_case: Sequence[Seen]) -> bool:
    return all(one.told and one.verdict == CASES[one.case].verdict and one.seconds <= MOST_S for one in of_case)


def row(name: str, of_case: Sequence[Seen]) -> tuple[str, ...]:
    case = CASES[name]
    if not of_case:
        return (case.title, case.verdict, NOTHING, NOTHING, "not run", NOTHING)
    verdicts = sorted({one.verdict for one in of_case})
    counted = ", ".join(f"{v} {sum(one.verdict == v for one in of_case)} of {len(of_case)}" for v in verdicts)
    took = [one.seconds for one in of_case]
    seconds = f"{took[0]:.0f}" if len(took) == 1 else f"{median(took):.0f} ({min(took):.0f} … {max(took):.0f})"
    return (case.title, case.verdict, counted, seconds, "yes" if as_expected(of_case) else "no", of_case[0].reason)


def markdown(results: Sequence[Seen]) -> str:
    where = machine()
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    headings = ("machine", "expected", "verdict", "seconds", f"so, within {MOST_S:.0f} s", "first reason")
    parts = [
        "# What a quick triage says, and how long it takes",
        "Made by `make triages`; run it again instead of editing this.",
        f"{where['date']}, commit {described.stdout.strip() or 'unknown'}: {where['cores']} cores, "
        f"{where['memory_gib']} GiB, Python {where['python']}, torch {where['torch']}, Linux {where['kernel']}.",
        "Each is `rn50-advisor triage --quick` as a command. GPUs are those of a fake driver: what the driver tells is "
        "judged, and nothing is measured on them.",
        grid(headings, [row(name, [one for one in results if one.case == name]) for name in CASES]),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all without one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="what has been run is kept here, and not run again")
    parser.add_argument("--runs", type=int, metavar="N", help="no more than this now; the rest with the next call")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    told = parser.parse_args()
    if unknown := set(told.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    results = [Seen(**one) for one in json.loads(told.json.read_text())] if told.json and told.json.exists() else []
    for name in list(islice(to_do(told.cases or list(CASES), results), told.runs)):
        try:
            results.append(run_once(name))
        except CannotBeMade as reason:
            print(f"{name}: not run: {reason}", flush=True)
            continue
        print(f"{name}: {results[-1].verdict} after {results[-1].seconds:.0f} s: {results[-1].reason}", flush=True)
        if told.json:
            told.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
    if told.markdown:
        told.markdown.write_text(markdown(results))
    sys.exit(0 if results and as_expected(results) else 1)


if __name__ == "__main__":
    main()
