"""A machine's training throughput by setting: the object that every output of `bench` shows; contract `rn50-advisor/bench/1`.

```
made_unix_s, machine   {host, device, devices, names: [], cores, torch, torchvision, cuda, instance: null|string, instance_source}
options     {model, image_size, classes, seconds, workers, data: folder of the real data, or ""}
cells[]     {precision, channels_last, batch, devices, data: synthetic|real, state: measured|oom|failed, why,
             images_per_s: {value, lo, hi}|null, step_s, steps, memory_bytes, verdict: {state, rule, title, summary}|null,
             shares: {phase: share of the step}, reference: [{tier, lo, hi, source, scaled}], run}
sweeps[]    {precision, channels_last, devices, data, batches: [], images_per_s: [], knee, oom_at}
scaling[]   {precision, channels_last, batch, data, devices: [], efficiency: [{value, lo, hi}]}
sentences[] conclusions in words
against     {name, cells: [{now, then: indices into both lists of cells, speed: {value, lo, hi}, change}], notes: []}|null
```
`batch` is the batch of one device; `images_per_s` counts all devices together, and its interval is the 95 % interval of the
median over stretches of steps. Efficiency is a device's images/s divided by those of one device alone at the same batch.
`run` is the path of the cell's recording below the benchmark's folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rn50_advisor.advisor.model.documents.comparison import Change, Estimate
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.report import Verdict, plain_values

SCHEMA = "rn50-advisor/bench/1"
FULL_PRECISIONS = ("fp32", "tf32")  # the others are mixed precision: 16 bits where that suffices

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Data = Literal["synthetic", "real"]
CellState = Literal["measured", "oom", "failed"]


@dataclass(frozen=True, slots=True)
class Machine:
    host: str
    device: Literal["cpu", "cuda"]
    devices: int
    names: tuple[str, ...]  # of the devices, in order
    cores: float | None  # cores that this process may use
    torch: str
    torchvision: str = ""
    cuda: str = ""
    instance: str | None = None
    instance_source: str = ""  # "metadata service", or what the instance was matched by


@dataclass(frozen=True, slots=True)
class Options:
    model: str
    image_size: int
    classes: int
    seconds: float
    workers: int
    data: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """The training settings of one cell."""

    precision: Precision
    channels_last: bool
    batch: int
    devices: int
    data: Data = "synthetic"

    @property
    def words(self) -> str:
        """For example `bf16, channels-last, batch 64, 2 devices, real data`."""
        layout = "channels-last" if self.channels_last else "channels-first"
        devices = f"{self.devices} device{'s' if self.devices > 1 else ''}"
        return f"{self.precision}, {layout}, batch {self.batch}, {devices}" + (", real data" * (self.data == "real"))


@dataclass(frozen=True, slots=True)
class ReferenceBand:
    tier: str
    lo: float
    hi: float
    source: str
    scaled: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    setting: Setting
    state: CellState
    why: str = ""  # reason if the state is not "measured"
    images_per_s: Estimate | None = None
    step_s: float | None = None
    steps: int = 0
    memory_bytes: int | None = None
    verdict: Verdict | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    reference: tuple[ReferenceBand, ...] = ()
    run: str = ""

    @property
    def rate(self) -> float:
        """Images/s; 0 if not measured."""
        return self.images_per_s.value if self.images_per_s else 0.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """One setting with growing batches. `knee`: the smallest batch near the best rate; `oom_at`: the first batch that did not fit."""

    precision: Precision
    channels_last: bool
    devices: int
    data: Data
    batches: tuple[int, ...]
    images_per_s: tuple[float, ...]
    knee: int | None
    oom_at: int | None


@dataclass(frozen=True, slots=True)
class Scaling:
    precision: Precision
    channels_last: bool
    batch: int
    data: Data
    devices: tuple[int, ...]
    efficiency: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True)
class CellChange:
    now: int
    then: int
    speed: Estimate
    change: Change


@dataclass(frozen=True, slots=True)
class Against:
    name: str
    cells: tuple[CellChange, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Benchmark:
    made_unix_s: float
    machine: Machine
    options: Options
    cells: tuple[Cell, ...]
    sweeps: tuple[Sweep, ...] = ()
    scaling: tuple[Scaling, ...] = ()
    sentences: tuple[str, ...] = ()
    against: Against | None = None

    @property
    def best(self) -> Cell | None:
        """The fastest cell."""
        return max((cell for cell in self.cells if cell.images_per_s), key=lambda cell: cell.rate, default=None)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values. The fields of a cell's setting are fields of the cell."""
        document: dict[str, Any] = {"schema": SCHEMA, **plain_values(self)}
        document["cells"] = [{**cell.pop("setting"), **cell} for cell in document["cells"]]
        return document


def parse_benchmark(text: str) -> Benchmark:
    """Parses the JSON document of a benchmark. Raises NotARun for anything else."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise NotARun(f"no benchmark of this version: {document['schema']!r}", f"this is {SCHEMA}")
        return _benchmark(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotARun(
            f"no benchmark: {type(error).__name__}: {error}", "made by: rn50-advisor bench -o F.json"
        ) from error


def _benchmark(d: Mapping[str, Any]) -> Benchmark:
    """Keeps the conclusions that the file holds, except `against`, its comparison with another benchmark."""
    machine = {**d["machine"], "names": tuple(d["machine"]["names"])}
    return Benchmark(
        made_unix_s=float(d["made_unix_s"]),
        machine=Machine(**machine),
        options=Options(**d["options"]),
        cells=tuple(_cell(cell) for cell in d["cells"]),
        sweeps=tuple(
            Sweep(**{**s, "batches": tuple(s["batches"]), "images_per_s": tuple(s["images_per_s"])})
            for s in d["sweeps"]
        ),
        scaling=tuple(
            Scaling(**{**s, "devices": tuple(s["devices"]), "efficiency": tuple(map(_estimate, s["efficiency"]))})
            for s in d["scaling"]
        ),
        sentences=tuple(d["sentences"]),
    )


def _cell(c: Mapping[str, Any]) -> Cell:
    setting = Setting(c["precision"], bool(c["channels_last"]), int(c["batch"]), int(c["devices"]), c["data"])
    return Cell(
        setting=setting,
        state=c["state"],
        why=c["why"],
        images_per_s=_estimate(c["images_per_s"]) if c["images_per_s"] else None,
        step_s=c["step_s"],
        steps=c["steps"],
        memory_bytes=c["memory_bytes"],
        verdict=Verdict(**c["verdict"]) if c["verdict"] else None,
        shares=c["shares"],
        reference=tuple(ReferenceBand(**r) for r in c["reference"]),
        run=c["run"],
    )


def _estimate(e: Mapping[str, Any]) -> Estimate:
    return Estimate(float(e["value"]), float(e["lo"]), float(e["hi"]))
