"""What the rules on GPUs say of each GPU of this machine: the same rules, with the same thresholds, as for a job that ran on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.gpu.gpu_errors import error_values
from rn50_advisor.advisor.analysis.gpu.gpu_ranks import gpus_of, paths_of
from rn50_advisor.advisor.analysis.gpu.gpu_use import gpu_values, path_values
from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.documents.machine_triage import Band, Check, CheckState, TriageGap
from rn50_advisor.advisor.model.findings import Clear, Crashed, Finding, NotMeasured, Outcome
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuView
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import StepTime, Throughput
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.triage.found_checks import Found, Item, Remedy, fact, judged
from rn50_advisor.advisor.triage.gpu.gpu_checks import seen
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.communication import com008_gpus_are_not_connected_peer_to_peer as com008
from rn50_advisor.rules.gpu import gpu001_the_gpu_is_thermally_or_hardware_throttled as gpu001
from rn50_advisor.rules.gpu import gpu002_a_power_cap_slows_it_more_than_its_peers as gpu002
from rn50_advisor.rules.gpu import gpu005_another_process_shares_the_gpu as gpu005
from rn50_advisor.rules.gpu import gpu006_the_pcie_link_is_narrower_or_slower_than_the_slot as gpu006
from rn50_advisor.rules.gpu import gpu007_the_gpu_reports_errors as gpu007
from rn50_advisor.rules.gpu import gpu008_nvlink_is_degraded as gpu008
from rn50_advisor.rules.gpu.gpu_names_and_cost import link_mb_per_s, of_gpu
from rn50_advisor.rules.rule import Rule

_STEADY = 100  # steps that a rule wants to have seen: here there are none, and nothing varies from one to the next
_SLOT_SHORT = 2  # generations: a quarter of the rate
# What is only wrong until the GPU is reset: a row that waits for it, and the Xids that say so (63: marked, 154: an action is asked for).
_UNTIL_RESET_XIDS = frozenset({63, 154})
_RANKS = re.compile(r" \(ranks? [\d, ]+\)")
_ERRORS = ("uncorrected_errors", "row_remap_pending", "row_remap_failed", "hardware_xids", "recovery_action", "lost")


@dataclass(frozen=True, slots=True)
class Asked:
    """One rule as a check of one GPU. `band`: what to show beside the value; the rule alone decides."""

    name: str
    rule: Rule
    value: Callable[[Analysis, Gpu], float | None]
    unit: str
    band: Callable[[Analysis, Gpu], Band]
    remedy: Callable[[Analysis, Gpu], Remedy]
    # asked of the stretch in which all GPUs have the same work: in the rest each has another at a time
    held: bool = False


def analysis_of(recording: Recording, within_ns: tuple[int, int] | None = None) -> Analysis:
    """As of a job of a rank on each GPU whose steps take a second: shares of a step are shares of the time.

    `within_ns`: of these readings alone, by the monotonic clock.
    """
    gpus = gpus_of(recording)
    paths = paths_of(recording)
    meta = recording.meta
    window = Window(recording, *(within_ns or (meta.started_ns, meta.last_ns)))
    missing: dict[str, str] = {}
    values = {
        **gpu_values(window, gpus, missing, of_load=True),
        **error_values(recording, gpus, missing),
        **path_values(gpus, paths),
        ("step.time_s", "job"): 1.0,
    }
    own = {"input_wait": 0.0, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    return Analysis(
        meta=meta,
        world_size=len(gpus),
        step_time=StepTime(1.0, 1.0, _STEADY, _STEADY),
        throughput=Throughput(None, 1.0, None, len(gpus)),
        values=values,
        missing=missing,
        model=StepModel(1.0, {gpu.index: own for gpu in gpus}),
        gpu_view=GpuView(gpus, paths),
        duration_s=(meta.last_ns - meta.started_ns) / 1e9,
    )


def health(
    recording: Recording, sustained_ns: tuple[int, int] | None = None, carrying: Container[int] = ()
) -> Iterator[Item]:
    """`sustained_ns`: from when to when all GPUs were kept busy at once; `carrying`: those to which copies are as fast as they should."""
    a = analysis_of(recording)
    held = analysis_of(recording, sustained_ns) if sustained_ns else a
    outcomes = {asked.rule.id: run_rule(asked.rule, held if asked.held else a, Config()) for asked in _ASKED}
    for gpu in a.gpu_view.devices:
        yield fact(f"gpu.{gpu.index}.name", gpu.name)
        for asked in _ASKED:
            yield _checked(held if asked.held else a, gpu, asked, outcomes[asked.rule.id])
        yield from _history(recording, gpu)
        yield from _slot(recording, gpu, carrying)
        yield from seen(recording, a, gpu)
        heat, clock = of_gpu(a, "gpu.temp_c", gpu), of_gpu(a, "gpu.clock_mhz", gpu)
        if heat is not None:
            yield fact(f"gpu.{gpu.index}.temp_c", heat, "°C", hint="the hottest that it was")
        if clock is not None:
            yield fact(
                f"gpu.{gpu.index}.clock_mhz",
                clock,
                "MHz",
                hint=f"under load; at most {gpu.sm_clock_max_mhz or 0:.0f} MHz",
            )
        steady = of_gpu(held, "gpu.clock_mhz", gpu) if sustained_ns else None
        if sustained_ns and steady is not None:
            took = f"over the {(sustained_ns[1] - sustained_ns[0]) / 1e9:.0f} s in which all GPUs worked at once"
            yield fact(f"gpu.{gpu.index}.sustained_clock_mhz", steady, "MHz", hint=took)
    if len(a.gpu_view.devices) > 1:
        yield _peers(a)
    yield from _gaps(recording)


def _checked(a: Analysis, gpu: Gpu, asked: Asked, outcome: Outcome) -> Found:
    name, value, band = f"gpu.{gpu.index}.{asked.name}", asked.value(a, gpu), asked.band(a, gpu)
    fired = isinstance(outcome, Finding) and gpu.index in outcome.scope.gpus
    if fired:
        assert isinstance(outcome, Finding)
        said = _words(gpu, outcome)
        return Found(Check(name, value, asked.unit, band, "bad", said), asked.remedy(a, gpu), why=said)
    # a rule that fired for another GPU, or lacks something of another one, has looked at this one too
    lacks = [n for n in outcome.missing if of_gpu(a, n, gpu) is None] if isinstance(outcome, NotMeasured) else []
    looked = not lacks and not isinstance(outcome, Crashed) and value is not None
    state: CheckState = "ok" if looked else "unknown"
    return Found(Check(name, value, asked.unit, band, state, "" if looked else _why_unseen(a, asked, lacks)))


def _words(gpu: Gpu, finding: Finding) -> str:
    mine = [_RANKS.sub("", e.note) for e in finding.evidence if e.note.startswith(f"GPU {gpu.index} ")]
    told = "; ".join(mine) or finding.title
    its_own = re.compile(rf"GPUs? (\d+(, | and ))*{gpu.index}\b")
    fix = next((fix for fix in finding.fixes if its_own.search(fix.title)), next(iter(finding.fixes), None))
    return f"{told}: {fix.title}" + (f" ({fix.change})" if fix.change else "") if fix else told


def _why_unseen(a: Analysis, asked: Asked, lacks: Sequence[str]) -> str:
    reasons = [a.missing[name] for name in (*lacks, *asked.rule.needs) if name in a.missing]
    return reasons[0] if reasons else "the driver does not report it here"


def _limit(rule: Rule, name: str, *, hi: bool = True) -> Band:
    threshold = rule.thresholds[name]
    source = f"rule {rule.id}: {threshold.why}"
    return Band(None, threshold.value, source) if hi else Band(threshold.value, None, source)


def _link_gb_per_s(a: Analysis, gpu: Gpu) -> float | None:
    gen, width = of_gpu(a, "gpu.pcie_gen", gpu), of_gpu(a, "gpu.pcie_width", gpu)
    return None if gen is None or width is None else link_mb_per_s(gen, width) / 1e3


def _link_band(a: Analysis, gpu: Gpu) -> Band:
    missing = gpu006.RULE.thresholds["missing"]
    source = f"rule GPU006, of what GPU and slot can do: {missing.why}"
    if not gpu.pcie_gen_max or not gpu.pcie_width_max:
        return Band(source=source)
    return Band((1 - missing.value) * link_mb_per_s(gpu.pcie_gen_max, gpu.pcie_width_max) / 1e3, None, source)


def _links_band(a: Analysis, gpu: Gpu) -> Band:
    source = f"rule GPU008: {gpu008.RULE.thresholds['links'].why}"
    return Band(of_gpu(a, "gpu.nvlinks_due", gpu), None, source)


def _link_remedy(a: Analysis, gpu: Gpu) -> Remedy:
    return "note" if gpu006.built_so(a, gpu) else "hand-back"


def _errors(a: Analysis, gpu: Gpu) -> float | None:
    """How many kinds of errors there are."""
    told = [of_gpu(a, f"gpu.{name}", gpu) for name in _ERRORS]
    known = [value for value in told if value is not None]
    watched = of_gpu(a, "gpu.errors_watched", gpu)
    return float(sum(value > 0 for value in known)) if watched else None


def _errors_remedy(a: Analysis, gpu: Gpu) -> Remedy:
    """A reset replaces a row that waits for it; whatever else comes while nothing trains comes again."""
    for_good = ("uncorrected_errors", "row_remap_failed", "lost")
    xids = {xid.code for xid in gpu.xids} - _UNTIL_RESET_XIDS
    hardware = bool(of_gpu(a, "gpu.hardware_xids", gpu)) and bool(xids)
    return "hand-back" if hardware or any(of_gpu(a, f"gpu.{name}", gpu) for name in for_good) else "fix"


def _peers(a: Analysis) -> Found:
    outcome = run_rule(com008.RULE, a, Config())
    pairs = a.get("gpu.pairs")
    band = Band(source="rule COM008: every pair that can reach each other does")
    if isinstance(outcome, Finding):
        evidence = outcome.evidence[0].note if outcome.evidence else outcome.title
        said = f"{outcome.title}: {evidence}: {outcome.fixes[0].title}"
        return Found(Check("gpu.peer_to_peer", pairs, "pairs", band, "bad", said), "fix", why=said)
    known = isinstance(outcome, Clear)
    hint = "" if known else "the driver does not tell how these GPUs are connected"
    return Found(Check("gpu.peer_to_peer", pairs, "pairs", band, "ok" if known else "unknown", hint))


def _history(recording: Recording, gpu: Gpu) -> Iterator[Item]:
    """Errors while we looked and from before: the counters of the driver since it was loaded, and of the board's life."""
    scope = f"gpu:{gpu.index}"
    if gpu.xids:
        yield fact(f"gpu.{gpu.index}.xids", ", ".join(f"{xid.code} after {xid.t_s:.0f} s" for xid in gpu.xids))
    since = recording.samples.get(("gpu.ecc_uncorrected", scope))
    if since is not None:
        hint = f"GPU {gpu.index} had uncorrectable memory errors since its driver was loaded: reset it and look again"
        band = Band(None, 0.0, "NVIDIA's GPU memory error management: none is expected")
        value = float(since.value[0])
        yield judged(
            f"gpu.{gpu.index}.ecc_uncorrected", value, "errors", band, remedy="fix", strict=True, hint=hint, why=hint
        )
    rows = recording.samples.get(("gpu.rows_remapped_uncorrected", scope))
    if rows is not None:
        hint = "each was replaced for good; eight in one bank are the end of a board" if rows.value[-1] else ""
        yield fact(f"gpu.{gpu.index}.rows_remapped", float(rows.value[-1]), "rows", hint=hint)


def _slot(recording: Recording, gpu: Gpu, carrying: Container[int]) -> Iterator[Item]:
    """A slot of the generation before the GPU's is how the machine was built, and yet worth a word; one of two before it is none of ours.

    Virtual machines make up what they say of slots: copies that are as fast as they should be are the better witness.
    """
    for entry in recording.meta.environment.get("gpus") or ():
        if entry["index"] == gpu.index and entry["pcie_gen_max"] and entry["pcie_gen_gpu_max"]:
            hint = f"the slot or its firmware setting allows no more; GPU {gpu.index} could do generation {entry['pcie_gen_gpu_max']}"
            band = Band(float(entry["pcie_gen_gpu_max"]), None, "the generation that the GPU itself can do")
            short = entry["pcie_gen_gpu_max"] - entry["pcie_gen_max"] >= _SLOT_SHORT and gpu.index not in carrying
            remedy: Remedy = "fix" if short else "note"
            name, why = f"gpu.{gpu.index}.pcie_gen_of_slot", f"{hint}: another slot, or its setting in the firmware"
            yield judged(name, float(entry["pcie_gen_max"]), "", band, remedy=remedy, hint=hint, why=why)


def _gaps(recording: Recording) -> Iterator[TriageGap]:
    told: set[tuple[str, str]] = set()
    for gap in recording.gaps:
        where = gap.scope.replace(":", ".")
        name = gap.metric if where == "host" else f"{where}.{gap.metric.removeprefix('gpu.')}"
        if (gap.metric, gap.reason) not in told:
            told.add((gap.metric, gap.reason))
            yield TriageGap(name, gap.reason, gap.hint)


def _always(remedy: Remedy) -> Callable[[Analysis, Gpu], Remedy]:
    return lambda a, gpu: remedy


def _of(name: str) -> Callable[[Analysis, Gpu], float | None]:
    return lambda a, gpu: of_gpu(a, name, gpu)


def _fixed(band: Band) -> Callable[[Analysis, Gpu], Band]:
    return lambda a, gpu: band


_SHARED: Mapping[str, float] = {name: t.value for name, t in gpu005.RULE.thresholds.items()}
_ASKED = (
    Asked(
        "throttled_share",
        gpu001.RULE,
        _of("gpu.throttled_share"),
        "share",
        _fixed(_limit(gpu001.RULE, "share")),
        _always("hand-back"),
    ),
    Asked(
        "power_capped_share",
        gpu002.RULE,
        _of("gpu.power_capped_share"),
        "share",
        _fixed(Band(source="rule GPU002: full load at the full limit is sound as long as the peers are as fast")),
        _always("fix"),
        held=True,
    ),
    Asked(
        "foreign_processes",
        gpu005.RULE,
        _of("gpu.foreign_processes"),
        "processes",
        _fixed(Band(None, _SHARED["processes"] - 1, f"rule GPU005: {gpu005.RULE.thresholds['processes'].why}")),
        _always("fix"),
    ),
    Asked("pcie_link_gb_per_s", gpu006.RULE, _link_gb_per_s, "GB/s", _link_band, _link_remedy),
    Asked(
        "errors",
        gpu007.RULE,
        _errors,
        "kinds",
        _fixed(Band(None, 0.0, "rule GPU007: none is expected")),
        _errors_remedy,
    ),
    Asked("nvlinks_active", gpu008.RULE, _of("gpu.nvlinks_active"), "links", _links_band, _always("hand-back")),
)
