"""Shows the advisor at work: trains ResNet50 with a real bottleneck, and tries the advised fix without editing a file.

It writes only to .demo/ and trains with samples/train.py, unmodified; the bottleneck is --workers 0.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

SAMPLES = Path(__file__).resolve().parent
FOLDER = Path(".demo")
BIN = Path(sys.executable).parent  # the environment need not be activated
CLASSES = 10
TRIAL_STEPS = "100000"  # a trial ends once it has been measured
# Runs in a separate process, so that this one never holds a GPU. SIG_DFL: Ctrl-C during the import of torch ends it without a traceback.
ASK_TORCH = """
import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)
import torch
gpus = torch.cuda.device_count()
print(gpus, bool(gpus) and torch.cuda.get_device_capability()[0] >= 8)
"""


@dataclass(frozen=True)
class Machine:
    cores: int
    gpus: int
    bf16: bool  # in hardware: emulated bf16 is slower than single precision


@dataclass(frozen=True)
class Setting:
    """A ResNet50 job for one machine on which loading in the training process is the true bottleneck."""

    ranks: int
    per_class: int
    scale: float
    flags: tuple[str, ...]
    environment: Mapping[str, str]
    why: str

    @property
    def images(self) -> Path:
        return FOLDER / "images" / f"{self.per_class * CLASSES}-at-{self.scale:g}x"


class StopRequested(Exception):
    """SIGTERM or SIGHUP was received."""


def look_at_machine() -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = subprocess.run([sys.executable, "-c", ASK_TORCH], stdout=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        raise SystemExit("This Python has no working torch; `make demo` makes an environment that has.")
    gpus, gpu_bf16 = asked.stdout.split()
    cpuinfo = Path("/proc/cpuinfo")
    cpu_bf16 = cpuinfo.exists() and bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", cpuinfo.read_text()))
    return Machine(cores, int(gpus), gpu_bf16 == "True" if int(gpus) else cpu_bf16)


def choose_setting(machine: Machine) -> Setting:
    common = ("--lr", "0.02", "--eval-every", "1000", "--print-every", "10")
    if machine.gpus:
        ranks = min(machine.gpus, 8)
        amp = "bf16" if machine.bf16 else "fp16"
        flags = (
            "--image-size",
            "224",
            "--batch-size",
            "64",
            "--amp",
            amp,
            "--channels-last",
            "--steps",
            "120",
            *common,
        )
        why = "One process a GPU. A core decodes about 500 of these pictures a second; a GPU trains on more."
        return Setting(ranks, 103 * ranks, 1.0, flags, {}, why)
    ranks = max(1, min(4, machine.cores // 2))
    amp = "bf16" if machine.bf16 else "off"
    steps = "50" if machine.bf16 else "40"
    flags = ("--image-size", "48", "--batch-size", "40", "--amp", amp, "--channels-last", "--steps", steps, *common)
    why = (
        "No GPU: one process for every two cores, each with one compute thread (torchrun's own default for several\n"
        "processes), so that there is a core left to load with. On CPU ResNet50 outweighs loading by far; crops of 48\n"
        "pixels out of pictures of 1000x750 bring the two near each other, as they are on a GPU."
    )
    return Setting(ranks, 40 * ranks, 2.0, flags, {"OMP_NUM_THREADS": "1"}, why)


def job_command(setting: Setting) -> list[str]:
    """The bottleneck is --workers 0."""
    torchrun = [str(BIN / "torchrun"), "--standalone", f"--nproc_per_node={setting.ranks}"]
    data = ["--data", str(setting.images), "--workers", "0"]
    return [*torchrun, str(SAMPLES / "train.py"), *data, *setting.flags]


def run_to_end(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns the exit code. Ctrl-C also reaches the child, so this only waits for it; on other signals it terminates the child."""
    child = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()
        raise
    except StopRequested:
        child.terminate()
        child.wait()
        raise


def watch_job(setting: Setting) -> tuple[dict[str, Any], Path]:
    """Runs the job under the advisor. Returns its report and the path of its HTML report."""
    reports = {kind: FOLDER / f"report.{kind}" for kind in ("json", "html")}
    for path in reports.values():
        path.unlink(missing_ok=True)
    advisor = ["run", "--run-dir", str(FOLDER / "runs")]
    if on_terminal():
        say("A screen opens. When the job has ended, the verdict stays there: q goes on with the demo.")
    else:
        advisor.append("--no-tui")
    for path in reports.values():
        advisor += ["--report", str(path)]
    code = run_advisor(advisor, job_command(setting), setting.environment)
    if code != 0:
        raise SystemExit(f"The job ended with exit code {code}; the demo ends here.")
    if not reports["json"].exists():
        raise SystemExit("The job ended well, but the advisor wrote no report; the demo ends here.")
    return json.loads(reports["json"].read_text()), reports["html"]


def try_advice(setting: Setting) -> int:
    job = [*job_command(setting), "--steps", TRIAL_STEPS]  # the last one counts
    return run_advisor(["try", "latest", "--run-dir", str(FOLDER / "runs")], job, setting.environment)


def run_advisor(arguments: Sequence[str], job: Sequence[str], environment: Mapping[str, str]) -> int:
    shown = " ".join(job).replace(f"{BIN}/", "").replace(f"{SAMPLES}", SAMPLES.name)
    say(f"rn50-advisor {' '.join(arguments)} -- {shown}", mark="$ ")
    return run_to_end([str(BIN / "rn50-advisor"), *arguments, "--", *job], environment)


def say(text: str, *, mark: str = "") -> None:
    print(f"{mark}{text}", flush=True)


def headline(text: str) -> None:
    say(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else f"\n== {text}")


def on_terminal() -> bool:
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) and not os.environ.get(
        "RN50_ADVISOR_NO_TUI"
    )


def verdict_of(report: Mapping[str, Any]) -> str:
    verdict = report["verdict"]
    return f"{verdict['title']} ({verdict['rule'] or verdict['state']})"


def demonstrate() -> None:
    start = time.monotonic()
    headline("1/3  Sample images")
    machine = look_at_machine()
    setting = choose_setting(machine)
    make = [sys.executable, str(SAMPLES / "make_images.py"), str(setting.images), "--classes", str(CLASSES)]
    make += ["--per-class", str(setting.per_class), "--val-per-class", "4", "--scale", str(setting.scale)]
    if run_to_end(make, {}) != 0:
        raise SystemExit("The sample images could not be made; the demo ends here.")

    headline("2/3  ResNet50, loaded by the training process itself (--workers 0)")
    say(setting.why)
    report, page = watch_job(setting)
    say(f"Verdict:  {verdict_of(report)}")

    headline("3/3  The advice, tried on the same job: no file is edited, and what a trial writes is thrown away")
    if code := try_advice(setting):
        raise SystemExit(f"The advice could not be tried (exit code {code}); the demo ends here.")
    say(f"Report:   {page}")
    say(f"Replay:   {BIN}/rn50-advisor watch --run-dir {FOLDER}/runs latest")
    say(f"Took {time.monotonic() - start:.0f} s.")


def stop(signum: int, _frame: FrameType | None) -> None:
    raise StopRequested(signal.Signals(signum).name)


def main() -> int:
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, stop)
    os.chdir(SAMPLES.parent)
    FOLDER.mkdir(exist_ok=True)
    try:
        demonstrate()
    except KeyboardInterrupt:
        say("\nStopped. Nothing is left running; `make demo` starts again where the images are.")
        return 130
    except StopRequested as stopped:
        say(f"Stopped by {stopped}.")
        return 143
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
