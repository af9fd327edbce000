"""Made-up benchmarks of machines. Not a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rn50_advisor.advisor.bench.bench_plan import BenchPlan, doublings
from rn50_advisor.advisor.model.documents.benchmark import Cell, Data, Machine, Options, Precision, Setting
from rn50_advisor.advisor.model.documents.comparison import Estimate
from rn50_advisor.advisor.model.report import Verdict

OPTIONS = Options("resnet50", 224, 1000, 10.0, 0)


def machine(device: str = "cuda", **given: Any) -> Machine:
    names = ("NVIDIA A100-SXM4-40GB",) * 8 if device == "cuda" else ()
    base: dict[str, Any] = {"host": "node", "devices": len(names) or 1, "names": names, "cores": 96.0, "torch": "2.9"}
    return Machine(device=device, **{**base, "torchvision": "0.24", "cuda": "12.8" if names else "", **given})  # type: ignore[arg-type]


A100 = machine()


def setting(
    precision: Precision, channels_last: bool, batch: int, devices: int = 1, data: Data = "synthetic"
) -> Setting:
    return Setting(precision, channels_last, batch, devices, data)


def cell(wanted: Setting, **given: Any) -> Cell:
    return Cell(wanted, **{"why": "", **given})


def measured(wanted: Setting, rate: float, *, rule: str | None = None, title: str = "") -> Cell:
    """A measured cell, uncertain by 2 % to either side."""
    state: Any = "bottleneck" if rule else "healthy"
    return Cell(
        wanted,
        "measured",
        images_per_s=Estimate(rate, 0.98 * rate, 1.02 * rate),
        step_s=wanted.batch * wanted.devices / rate,
        steps=100,
        memory_bytes=wanted.batch * 100_000_000,
        verdict=Verdict(state, rule, title or ("Something is slow" if rule else "Compute-bound"), "So it is."),
        shares={"forward": 0.3, "backward": 0.6, "optimizer": 0.1},
        run="run",
    )


PLAN = BenchPlan(("fp32", "bf16"), (True, False), 32, doublings(16, 256), (1, 2, 4))


def machine_that(rate: Callable[[Setting], float], *, fits: int = 1 << 30) -> Callable[[Setting], Cell]:
    def measure(wanted: Setting) -> Cell:
        return cell(wanted, state="oom") if wanted.batch > fits else measured(wanted, rate(wanted))

    return measure


def saturating(wanted: Setting) -> float:
    """Images/s: bf16 is twice as fast; half speed at a batch of 8, near the best at 128."""
    return (2000 if wanted.precision == "bf16" else 1000) * wanted.batch / (wanted.batch + 8) * wanted.devices**0.9
