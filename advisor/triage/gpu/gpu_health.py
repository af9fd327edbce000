"""The GPU rules for each GPU of this machine: same rules and thresholds as for a job that ran on it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rn50_advisor.advisor.analysis.gpu.gpu_errors import error_values
from rn50_advisor.advisor.analysis.gpu.gpu_ranks import gpus_of, paths_of
from rn50_advisor.advisor.analysis.gpu.gpu_use import gpu_values, path_values
from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.documents.machine_triage import Band, Check, CheckState, TriageGap
from rn50_advisor.advisor.model.findings import Clear, Crashed, Finding, NotMeasured, Outcome
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuView
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_CLOCK_MHZ,
    GPU_CLOCK_SET_SHARE,
    GPU_ERRORS_WATCHED,
    GPU_FOREIGN_PROCESSES,
    GPU_HARDWARE_XIDS,
    GPU_LOST,
    GPU_NVLINKS_ACTIVE,
    GPU_NVLINKS_DUE,
    GPU_PAIRS,
    GPU_PCIE_GEN,
    GPU_PCIE_WIDTH,
    GPU_POWER_CAPPED_SHARE,
    GPU_RECOVERY_ACTION,
    GPU_ROW_REMAP_FAILED,
    GPU_ROW_REMAP_PENDING,
    GPU_TEMP_C,
    GPU_THROTTLED_SHARE,
    GPU_UNCORRECTED_ERRORS,
)
from rn50_advisor.advisor.model.measures.measure import JOB, GpuMeasure, Measure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
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
from rn50_advisor.rules.gpu import gpu009_a_clock_setting_holds_the_gpu_back as gpu009
from rn50_advisor.rules.gpu.gpu_names_and_cost import link_mb_per_s, of_gpu
from rn50_advisor.rules.rule import Rule

_STEADY_STEPS = 100  # number of steps that satisfies the rules: a triage has no steps, and so no variation between them
_SLOT_SHORT = 2  # generations: a quarter of the rate
# Errors that a reset clears: a row that waits for it, and the Xids that say so (63: marked, 154: an action is requested).
_UNTIL_RESET_XIDS = frozenset({63, 154})
_ERRORS = (
    GPU_UNCORRECTED_ERRORS,
    GPU_ROW_REMAP_PENDING,
    GPU_ROW_REMAP_FAILED,
    GPU_HARDWARE_XIDS,
    GPU_RECOVERY_ACTION,
    GPU_LOST,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A rule used as a check of one GPU. `band` is only shown beside the value; the rule alone decides."""

    name: str
    rule: Rule
    value: Callable[[Analysis, Gpu], float | None]
    unit: str
    band: Callable[[Analysis, Gpu], Band]
    remedy: Callable[[Analysis, Gpu], Remedy]
    # checked only while all GPUs have the same work: otherwise they work one after the other
    held: bool = False


def analysis_of(recording: Recording, within_ns: tuple[int, int] | None = None) -> Analysis:
    """Analyses the readings as a job with one rank per GPU and steps of one second, so that shares of a step are shares of time.

    `within_ns` limits it to the readings between two times (monotonic clock).
    """
    gpus = tuple(replace(gpu, made_up_rank=True) for gpu in gpus_of(recording))
    paths = paths_of(recording)
    meta = recording.meta
    window = Window(recording, *(within_ns or (meta.started_ns, meta.last_ns)))
    values = Measured({(STEP_TIME_S, JOB): 1.0})
    for found in (gpu_values(window, gpus, of_load=True), error_values(recording, gpus), path_values(gpus, paths)):
        values.add(found)
    own = {"input_wait": 0.0, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    return Analysis(
        meta=meta,
        world_size=len(gpus),
        step_time=StepTime(1.0, 1.0, _STEADY_STEPS, _STEADY_STEPS),
        throughput=Throughput(None, 1.0, None, len(gpus)),
        values=values,
        reasons=values.missing,
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
    outcomes = {asked.rule.id: run_rule(asked.rule, held if asked.held else a, Config()) for asked in _RULE_CHECKS}
    for gpu in a.gpu_view.devices:
        yield fact(f"gpu.{gpu.index}.name", gpu.name)
        for asked in _RULE_CHECKS:
            yield _checked(held if asked.held else a, gpu, asked, outcomes[asked.rule.id])
        yield from _history(recording, gpu)
        yield from _slot(recording, gpu, carrying)
        yield from seen(recording, a, gpu)
        heat, clock = of_gpu(a, GPU_TEMP_C, gpu), of_gpu(a, GPU_CLOCK_MHZ, gpu)
        if heat is not None:
            yield fact(f"gpu.{gpu.index}.temp_c", heat, "°C", hint="its highest temperature")
        if clock is not None:
            yield fact(
                f"gpu.{gpu.index}.clock_mhz",
                clock,
                "MHz",
                hint=f"under load; at most {gpu.sm_clock_max_mhz or 0:.0f} MHz",
            )
        steady = of_gpu(held, GPU_CLOCK_MHZ, gpu) if sustained_ns else None
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
        hint = _words(gpu, outcome)
        return Found(
            Check(name, value, asked.unit, band, "bad", hint), asked.remedy(a, gpu), why=hint, gpus=(gpu.index,)
        )
    # a rule that fired for another GPU, or lacks something of another one, has looked at this one too
    missing = outcome.missing if isinstance(outcome, NotMeasured) else ()
    lacks = [m for m in missing if isinstance(m, GpuMeasure) and of_gpu(a, m, gpu) is None]
    looked = not lacks and not isinstance(outcome, Crashed) and value is not None
    state: CheckState = "ok" if looked else "unknown"
    hint = "" if looked else _why_unknown(a, asked, lacks)
    return Found(Check(name, value, asked.unit, band, state, hint), gpus=(gpu.index,))


def _words(gpu: Gpu, finding: Finding) -> str:
    notes = "; ".join(e.note for e in finding.evidence if e.gpu == gpu.index) or finding.title
    fix = next((fix for fix in finding.fixes if gpu.index in fix.gpus), next(iter(finding.fixes), None))
    return f"{notes}: {fix.title}" + (f" ({fix.change})" if fix.change else "") if fix else notes


def _why_unknown(a: Analysis, asked: Asked, lacks: Sequence[Measure]) -> str:
    reasons = [a.missing[measure] for measure in (*lacks, *asked.rule.needs) if measure in a.missing]
    return reasons[0] if reasons else "the driver does not report it here"


def _limit(rule: Rule, name: str) -> Band:
    threshold = rule.thresholds[name]
    return Band(None, threshold.value, f"rule {rule.id}: {threshold.why}")


def _link_gb_per_s(a: Analysis, gpu: Gpu) -> float | None:
    gen, width = of_gpu(a, GPU_PCIE_GEN, gpu), of_gpu(a, GPU_PCIE_WIDTH, gpu)
    return None if gen is None or width is None else link_mb_per_s(gen, width) / 1e3


def _link_band(a: Analysis, gpu: Gpu) -> Band:
    missing = gpu006.RULE.thresholds["missing"]
    source = f"rule GPU006, of what GPU and slot can do: {missing.why}"
    if not gpu.pcie_gen_max or not gpu.pcie_width_due:
        return Band(source=source)
    return Band((1 - missing.value) * link_mb_per_s(gpu.pcie_gen_max, gpu.pcie_width_due) / 1e3, None, source)


def _links_band(a: Analysis, gpu: Gpu) -> Band:
    source = f"rule GPU008: {gpu008.RULE.thresholds['links'].why}"
    return Band(of_gpu(a, GPU_NVLINKS_DUE, gpu), None, source)


def _link_remedy(a: Analysis, gpu: Gpu) -> Remedy:
    return "note" if gpu006.built_so(a, gpu) or gpu006.of_slot(a, gpu) else "hand-back"


def _errors(a: Analysis, gpu: Gpu) -> float | None:
    """Number of kinds of errors."""
    counts = [of_gpu(a, measure, gpu) for measure in _ERRORS]
    known = [value for value in counts if value is not None]
    watched = of_gpu(a, GPU_ERRORS_WATCHED, gpu)
    return float(sum(value > 0 for value in known)) if watched else None


def _errors_remedy(a: Analysis, gpu: Gpu) -> Remedy:
    """Returns `fix` if a reset clears the errors (a row that waits to be remapped), else `hand-back`: other errors come again."""
    for_good = (GPU_UNCORRECTED_ERRORS, GPU_ROW_REMAP_FAILED, GPU_LOST)
    xids = {xid.code for xid in gpu.xids} - _UNTIL_RESET_XIDS
    hardware = bool(of_gpu(a, GPU_HARDWARE_XIDS, gpu)) and bool(xids)
    return "hand-back" if hardware or any(of_gpu(a, measure, gpu) for measure in for_good) else "fix"


def _peers(a: Analysis) -> Found:
    outcome = run_rule(com008.RULE, a, Config())
    pairs = a.get(GPU_PAIRS)
    band = Band(source="rule COM008: every pair that can reach each other does")
    if isinstance(outcome, Finding):
        evidence = outcome.evidence[0].note if outcome.evidence else outcome.title
        why = f"{outcome.title}: {evidence}: {outcome.fixes[0].title}"
        return Found(Check("gpu.peer_to_peer", pairs, "pairs", band, "bad", why), "fix", why=why)
    known = isinstance(outcome, Clear)
    hint = "" if known else "the driver does not report how these GPUs are connected"
    return Found(Check("gpu.peer_to_peer", pairs, "pairs", band, "ok" if known else "unknown", hint))


def _history(recording: Recording, gpu: Gpu) -> Iterator[Item]:
    """Errors while we looked and from before: the counters of the driver since it was loaded, and of the board's life."""
    scope = f"gpu:{gpu.index}"
    if gpu.xids:
        yield fact(f"gpu.{gpu.index}.xids", ", ".join(f"{xid.code} after {xid.t_s:.0f} s" for xid in gpu.xids))
    since = recording.samples.get(("gpu.ecc_uncorrected", scope))
    if since is not None:
        hint = f"GPU {gpu.index} had uncorrectable memory errors since its driver was loaded: reset it and check again"
        band = Band(None, 0.0, "NVIDIA's GPU memory error management: none is expected")
        value = float(since.value[0])
        yield judged(
            f"gpu.{gpu.index}.ecc_uncorrected", value, "errors", band, remedy="fix", strict=True, hint=hint, why=hint
        )
    rows = recording.samples.get(("gpu.rows_remapped_uncorrected", scope))
    if rows is not None:
        hint = (
            "each was replaced permanently; eight in one bank mean that the board is worn out" if rows.value[-1] else ""
        )
        yield fact(f"gpu.{gpu.index}.rows_remapped", float(rows.value[-1]), "rows", hint=hint)


def _slot(recording: Recording, gpu: Gpu, carrying: Container[int]) -> Iterator[Item]:
    """Yields the PCIe generation of the slot. One generation short of the GPU's is how the machine was built: a note. Two: to be fixed.

    Virtual machines report invented slots: a GPU in `carrying`, to which copies are as fast as expected, gets at most a note.
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
    reported: set[tuple[str, str]] = set()
    for gap in recording.gaps:
        where = gap.scope.replace(":", ".")
        name = gap.metric if where == "host" else f"{where}.{gap.metric.removeprefix('gpu.')}"
        if (gap.metric, gap.reason) not in reported:
            reported.add((gap.metric, gap.reason))
            yield TriageGap(name, gap.reason, gap.hint)


def _always(remedy: Remedy) -> Callable[[Analysis, Gpu], Remedy]:
    return lambda a, gpu: remedy


def _of(measure: GpuMeasure) -> Callable[[Analysis, Gpu], float | None]:
    return lambda a, gpu: of_gpu(a, measure, gpu)


def _fixed(band: Band) -> Callable[[Analysis, Gpu], Band]:
    return lambda a, gpu: band


_SHARED: Mapping[str, float] = {name: t.value for name, t in gpu005.RULE.thresholds.items()}
_RULE_CHECKS = (
    Asked(
        "throttled_share",
        gpu001.RULE,
        _of(GPU_THROTTLED_SHARE),
        "share",
        _fixed(_limit(gpu001.RULE, "share")),
        _always("hand-back"),
    ),
    Asked(
        "power_capped_share",
        gpu002.RULE,
        _of(GPU_POWER_CAPPED_SHARE),
        "share",
        _fixed(Band(source="rule GPU002: full load at the full limit is sound as long as the peers are as fast")),
        _always("fix"),
        held=True,
    ),
    Asked(
        "clock_set_share",
        gpu009.RULE,
        _of(GPU_CLOCK_SET_SHARE),
        "share",
        _fixed(_limit(gpu009.RULE, "set")),
        _always("fix"),
    ),
    Asked(
        "foreign_processes",
        gpu005.RULE,
        _of(GPU_FOREIGN_PROCESSES),
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
    Asked("nvlinks_active", gpu008.RULE, _of(GPU_NVLINKS_ACTIVE), "links", _links_band, _always("hand-back")),
)
