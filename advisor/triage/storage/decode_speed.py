"""Images per second that one core, and all available cores together, can prepare for training."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.triage.child_program import run_child, why_not
from rn50_advisor.advisor.triage.found_checks import Found, Item, TriageOptions, fact, judged
from rn50_advisor.advisor.triage.host.other_load import Watch
from rn50_advisor.advisor.triage.host.processor import clock, cores_allowed, working_mhz

# Pillow on the slowest of five cloud processors (Neoverse N1): 360 images/s of ImageNet. What torchvision does beside decoding takes
# 1.03 ms where Pillow makes 537 (EPYC 9B14), so 1.54 ms there: 232 images/s for the whole chain.
_TABLE = "Pillow on the slowest of five cloud processors (github.com/ternaus/imread_benchmark, arXiv 2605.08731)"
_DECODE_ALONE, _WHOLE_CHAIN = 360.0, 232.0
# Typical rates, beside the minimum: both for one core of a common server processor, in images of ImageNet's size.
_USUAL_ALONE, _USUAL_CHAIN, _USUAL_CORE = 537.0, 437.0, "one core of an EPYC 9B14"
_ONE_CORE_SHARE_MIN = 0.75
# Workers share memory and caches: FACTS of four workers, 0.62 to 0.89 each; two threads of one core give 1.3 of one.
_ALL_CORES_SHARE_MIN = 0.5
PROCESSES_MOST = 64
QUICK_S, FULL_S = 2.0, 4.0
_TIMEOUT_S = 90.0  # the first import of torch from a cold network disk takes that long
_SUFFIXES = (".jpg", ".jpeg", ".JPEG", ".JPG")


def decoding(setting: TriageOptions, watch: Watch) -> Iterator[Item]:
    """The pipeline of the interpreter that trains; while all cores decode, their clock is read."""
    allowed = cores_allowed(watch)
    processes = max(1, min(round(allowed), PROCESSES_MOST))
    asked = {"processes": processes, "seconds": FULL_S if setting.full else QUICK_S, "files": _pictures_of(setting)}
    results: dict[str, Any] = {}
    clocks = _Clocks(setting.root, watch.cores, processes)

    def on_result(result: dict[str, Any]) -> None:
        results.update(result)
        if result.get("phase") == "all":
            clocks.begin()

    timeout_s = min(_TIMEOUT_S, setting.left_s)
    try:
        ended = run_child(
            setting.python, "decode_images", asked, timeout_s=timeout_s, scratch=setting.scratch, on_result=on_result
        )
    finally:
        clocks.end()
    if "one" not in results:
        reason = why_not(ended, f"decoding with {setting.python}")
        hint = "name the interpreter that trains with --python; it needs torchvision, or Pillow at least"
        yield TriageGap("decode.images_per_core_s", reason, hint)
        return
    whole = bool(results["whole"])
    base = _ONE_CORE_SHARE_MIN * (_WHOLE_CHAIN if whole else _DECODE_ALONE)
    yield fact("decode.pipeline", str(results["pipeline"]))
    usual = _USUAL_CHAIN if whole else _USUAL_ALONE
    yield _per_core(float(results["one"]), Band(base, None, f"{_ONE_CORE_SHARE_MIN} × {_source(whole=whole)}"), usual)
    if "data" in results:
        hint = f"images of --data, {fmt.bytes_(results['data_bytes'])} each"
        yield fact("decode.data_images_per_core_s", float(results["data"]), "images/s", hint=hint)
    elif setting.data is not None:
        reason = "there are no JPEGs of an image's size" if setting.listing else "it does not answer"
        reason = "none of its images could be decoded" if asked["files"] else reason
        yield TriageGap(
            "decode.data_images_per_core_s", f"{setting.data}: {reason}", "generated images are used instead"
        )
    if "all" in results:
        cores = min(allowed, float(processes))
        source = f"{_ALL_CORES_SHARE_MIN} × {cores:g} cores × what one core should do: {_source(whole=whole)}"
        found = _together(float(results["all"]), processes, Band(_ALL_CORES_SHARE_MIN * cores * base, None, source))
        yield replace(found, ran_share=results.get("ran_share"))
    elif "why_not_all" in results:
        yield TriageGap("decode.images_all_cores_s", str(results["why_not_all"]), "see dmesg for what ended it")
    yield clock(clocks.loaded_mhz, setting.root)


def _source(*, whole: bool) -> str:
    return (
        f"{_WHOLE_CHAIN:.0f} images/s: {_TABLE}, and torchvision's transforms"
        if whole
        else f"{_DECODE_ALONE:.0f} images/s: {_TABLE}"
    )


def _per_core(rate: float, band: Band, usual: float) -> Item:
    rates = f"a core prepares {fmt.number(rate)} images/s here, {usual:.0f} are usual ({_USUAL_CORE})"
    hint = f"{rates}: slow cores, or another job on the same cores"
    found = judged(
        "decode.images_per_core_s", rate, "images/s", band, remedy="hand-back", needs_cores=True, hint=hint, why=hint
    )
    return replace(found, check=replace(found.check, hint=found.check.hint or rates))


def _together(rate: float, processes: int, band: Band) -> Found:
    hint = f"{processes} processes prepare {fmt.number(rate)} images/s together: hyper-threads that share cores, or slow memory"
    return judged(
        "decode.images_all_cores_s", rate, "images/s", band, remedy="hand-back", needs_cores=True, hint=hint, why=hint
    )


def _pictures_of(setting: TriageOptions) -> list[str]:
    small = setting.listing.small if setting.listing else ()
    return [str(path) for path, _ in small if path.suffix in _SUFFIXES][:64]


class _Clocks:
    """Reads the clocks of the cores that have work, twice a second from `begin` to `end`."""

    def __init__(self, root: Path, cores: Collection[int], working: int) -> None:
        self._root = root
        self._cores = cores
        self._working = working
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: list[float] = []

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def loaded_mhz(self) -> float | None:
        return sum(self._seen) / len(self._seen) if self._seen else None

    def _read(self) -> None:
        while not self._over.wait(0.5):
            mhz = working_mhz(self._cores, self._working, self._root)
            if mhz is not None:
                self._seen.append(mhz)
