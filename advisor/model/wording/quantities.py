"""Formats quantities for every screen and report: three significant digits, `–` for unknown values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeGuard

from rn50_advisor.advisor.model.wording.metric_titles import METRIC_TITLES

DASH = "–"
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNIT_SUFFIXES = (
    "_mb_per_s",
    "_per_s",
    "_mb_s",
    "_s",
    "_bytes",
    "_mb",
    "_kb",
    "_pct",
    "_mhz",
    "_mbps",
)  # the longer ones first
_SPELT = {"cpu": "CPU", "gc": "GC", "gpu": "GPU", "io": "I/O", "nccl": "NCCL", "net": "network", "pcie": "PCIe"}
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def number(x: float | None, unit: str = "") -> str:
    """`1,234 samples/s`, `12.3`, `4.5 M`: no decimals for whole numbers, digit groups up to a million, SI prefixes beyond."""
    if not _known(x):
        return DASH
    size = abs(x)
    for factor, prefix in _SI:
        if size >= factor * 0.9995:
            return f"{_digits(x / factor)} {prefix}{unit}"
    text = f"{x:,.0f}" if float(x).is_integer() else _digits(x)
    return f"{text} {unit}" if unit else text


def rate(x: float | None, unit: str = "/s") -> str:
    """Like `number`, but a whole number keeps its decimals, so that a live value does not jitter."""
    if not _known(x):
        return DASH
    return number(x, unit) if abs(x) >= 999_500 else f"{_digits(x)} {unit}".strip()


def duration(s: float | None) -> str:
    """`850 µs`, `12.3 ms`, `4.56 s`, `3m 07s`, `2h 05m`, `3d 04h`."""
    if not _known(s):
        return DASH
    sign, size = ("-" if s < 0 else ""), abs(s)
    if 0 < size < 0.9995e-9:
        return "<1 ns"
    if size < 59.95:
        factor, unit = _second_unit(size)
        return f"{sign}{_digits(size / factor)} {unit}" if size else "0 s"
    whole = round(size)
    for big, small, names in ((86400, 3600, "dh"), (3600, 60, "hm"), (60, 1, "ms")):
        if whole >= big:
            return f"{sign}{whole // big}{names[0]} {whole % big // small:02d}{names[1]}"
    raise AssertionError(s)  # 59.95 rounds to 60


def clock(s: float | None) -> str:
    """A position in a run: `0:07`, `12:34`, `1:02:03`."""
    if not _known(s):
        return DASH
    whole = int(max(s, 0.0))
    hours, minutes, seconds = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def bytes_(n: float | None) -> str:
    """Powers of 1024, as memory is counted: `512 B`, `1.50 GiB`."""
    if not _known(n):
        return DASH
    power = 0
    while abs(n) >= 1023.5 and power < len(_BINARY) - 1:
        n /= 1024
        power += 1
    return f"{n:.0f} B" if power == 0 else f"{_digits(n)} {_BINARY[power]}"


def percent(x: float | None) -> str:
    """Formats a value that is already in percent: `41 %`, `4.2 %`, `<0.1 %`."""
    if not _known(x):
        return DASH
    size = abs(x)
    if 0 < size < 0.05:
        return "<0.1 %"
    return f"{x:.0f} %" if size >= 9.95 or size == 0 else f"{x:.1f} %"


def share(x: float | None) -> str:
    """Formats a fraction: 0.413 is `41 %`."""
    return percent(x * 100) if _known(x) else DASH


def speedup_range(pair: tuple[float, float] | None) -> str:
    """`1.4–1.6×`; two decimals if one would hide the range or the gain (`1.04–1.07×`)."""
    if pair is None or not all(map(_known, pair)):
        return DASH
    low, high = (speedup(end, pair) for end in (min(pair), max(pair)))
    return low if low == high else f"{low.removesuffix('×')}–{high}"


def ratio(x: float) -> str:
    """`1.48`, `0.40`, `0.0020`, `12.3`, `145`: a speed over another one, never rounded to zero."""
    size = abs(x)
    if not math.isfinite(x) or 0.095 <= size < 9.995 or size < 1e-9:
        return f"{x:.2f}" if math.isfinite(x) else DASH
    return f"{x:,.{0 if size >= 99.95 else 1}f}" if size > 1 else f"{x:.{min(1 - math.floor(math.log10(size)), 9)}f}"


def speedup(x: float, pair: tuple[float, float]) -> str:
    """`1.5×`, with as many decimals as its range needs."""
    lo, hi = min(pair), max(pair)
    places = 0 if lo >= 9.95 else 1 if lo >= 1.195 and round(hi - lo, 2) >= 0.1 else 2
    return f"{x:.{places}f}×"


def seconds_range(pair: tuple[float, float] | None) -> str:
    """`0.50–1.20 s`, `12–18 ms`: both ends in the unit of the larger one."""
    if pair is None or not all(map(_known, pair)):
        return DASH
    lo, hi = min(pair), max(pair)
    if lo == hi:
        return duration(lo)
    if abs(hi) >= 59.95:
        low, high = duration(lo), duration(hi)
        return low if low == high else f"{low} – {high}"
    factor, unit = _second_unit(max(abs(lo), abs(hi)))
    places = 0 if hi / factor >= 9.95 else 1 if factor < 1 else 2
    low, high = f"{lo / factor:.{places}f}", f"{hi / factor:.{places}f}"
    return f"{low} {unit}" if low == high else f"{low}–{high} {unit}"


def quantity(value: float | str | None, unit: str = "") -> str:
    """Formats a value by its unit: seconds, bytes, percent, shares or any other."""
    if value is None or isinstance(value, str):
        return value or DASH
    write = _BY_UNIT.get(unit)
    return write(value) if write else number(value, unit)


def metric_words(name: str) -> str:
    """A metric's title: `step.input_wait_s` is `input wait`; without one, the words of its name. The value beside it has the unit."""
    if title := METRIC_TITLES.get(name):
        return title
    if name.isupper():  # an environment variable
        return name
    if name.endswith(".*"):  # all readings of one probe
        return f"all {metric_words(name[:-2])} readings"
    suffix = next((suffix for suffix in _UNIT_SUFFIXES if name.endswith(suffix)), "")
    words = name.removesuffix(suffix).replace(".", " ").replace("_", " ").split(" ")
    return " ".join(_SPELT.get(word, word) for word in words)


def metric_list(names: Iterable[str]) -> str:
    """`input wait, loader workers`: titles of metrics, each once."""
    return ", ".join(dict.fromkeys(metric_words(name) for name in names))


def amount(value: float | str | None, unit: str, metric: str) -> str:
    """Formats a quantity beside its metric's words, without a unit that the words end with (`loader workers  4`); a share in per cent."""
    unit = "share" if not unit and metric.endswith("_share") else unit
    repeated = unit not in ("", "share", "bytes") and f" {metric_words(metric)}".endswith(f" {unit}")
    return quantity(value, "" if repeated else unit)


def counted(n: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def numbers(values: Iterable[int], most: int = 12) -> str:
    """`0–2, 5`: the first `most` runs of consecutive numbers."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    spoken = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return ", ".join(spoken[:most]) + (", …" if len(spoken) > most else "")


def rule_ids(ids: Iterable[str]) -> str:
    """`COM005, GPU001–003`: runs of consecutive numbers after the same letters."""
    runs: list[list[str]] = []
    for name in sorted(set(ids)):
        last = runs[-1][-1] if runs else ""
        numbered = last[:3] == name[:3] and last[3:].isdecimal() and name[3:].isdecimal()
        if numbered and int(name[3:]) == int(last[3:]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1][3:]}" for run in runs)


def shorten(text: str, width: int) -> str:
    """The text in at most `width` characters; `…` marks the cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…" if width > 0 else ""


def shorten_path(path: str, width: int) -> str:
    """The end of a path in at most `width` characters: `…/data/loader.py`. The end says more than the beginning."""
    return path if len(path) <= width else "…" + path[len(path) - max(width - 1, 0) :] if width > 0 else ""


def _known(x: float | None) -> TypeGuard[float]:
    return x is not None and math.isfinite(x)


def _digits(x: float) -> str:
    """Three significant digits without an exponent; digit groups from a thousand on."""
    size = abs(x)
    for limit, places in ((99.95, 0), (9.995, 1), (0.9995, 2)):
        if size >= limit:
            return f"{x:,.{places}f}"
    if size == 0:
        return "0"
    places = min(2 - math.floor(math.log10(size)), 9)
    return f"{x:.{places}f}" if size >= 1e-6 else f"{x:.2g}"


def _second_unit(size: float) -> tuple[float, str]:
    for factor, unit in _SECONDS:
        if size >= factor * 0.9995:
            return factor, unit
    return _SECONDS[-1]


_BY_UNIT: dict[str, Callable[[float], str]] = {
    "s": duration,
    "ms": lambda x: duration(x * 1e-3),
    "us": lambda x: duration(x * 1e-6),
    "µs": lambda x: duration(x * 1e-6),
    "ns": lambda x: duration(x * 1e-9),
    "bytes": bytes_,
    "B": bytes_,
    "%": percent,
    "share": share,
    "s/s": share,
    "ratio": ratio,
    "×": lambda x: speedup_range((x, x)),
    "x": lambda x: speedup_range((x, x)),
}
