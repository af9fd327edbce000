"""Wording of the job's surroundings: the node and its GPUs as last seen, the environment, and facts about the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from rn50_advisor.advisor.model.input.sample_cost import without_samples
from rn50_advisor.advisor.model.report import GpuStrip, HostStrip, NodeStrip, Report, nodes_shown
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording.fact_rows import without_tabulated
from rn50_advisor.advisor.model.wording.loader_words import without_loaders
from rn50_advisor.advisor.model.wording.pace_words import with_pace_in_words
from rn50_advisor.advisor.report.gpu_words import PathMatrix, in_words, path_matrix

NODES_SHOWN = 16


def pairs(report: Report, *, beside: Collection[str] = ()) -> list[tuple[str, str]]:
    """Environment and facts as flat pairs, with those of `beside`; start, loaders, samples and storage are shown elsewhere."""
    rest = {key: value for key, value in report.environment.items() if key not in ("started", *beside)}
    facts = with_pace_in_words(without_tabulated(without_samples(without_loaders(report.facts))))
    return [*flat(in_words(rest)), *flat(facts, "job.")]


def gpu_paths(report: Report) -> PathMatrix | None:
    return path_matrix(report.environment)


def nodes(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    """Name, ranks and clock of each host of a multi-host job (of many hosts, those that matter), and its last sign of life."""
    chosen = nodes_shown(report, NODES_SHOWN)
    rows = [(node.host, [*_node(node, report), *(host(node.strip) if node.strip else [])]) for node in chosen]
    left = len(report.nodes) - len(chosen)
    return [*rows, *([("…", [("not listed", f"{left} more hosts, in the JSON report")])] if left else [])]


def _node(node: NodeStrip, report: Report) -> list[tuple[str, str]]:
    strips = [strip for strip in report.ranks if strip.rank in node.ranks]
    late = max((strip.late_share or 0.0 for strip in strips), default=0.0)
    known = {"own": "the job's", "collectives": "by gradient exchanges", "wall clock": "by wall clock only"}
    clock = known.get(node.clock, node.clock)
    if node.clock != "own":
        clock += f", ±{fmt.duration(node.clock_uncertainty_s)}"
    pairs = [
        ("ranks", fmt.numbers(node.ranks)),
        ("last to arrive in", fmt.share(late) + " of the steps" if late else ""),
        ("clock", clock),
        ("no data since", "" if node.lost_after_s is None else fmt.duration(node.lost_after_s)),
    ]
    return [(label, value) for label, value in pairs if value]


def host(strip: HostStrip) -> list[tuple[str, str]]:
    """The node as last seen: only what was measured."""
    cores = f"{fmt.number(strip.busy_cores)} of {fmt.number(strip.cores)} cores" if strip.busy_cores is not None else ""
    job = (
        f"{fmt.number(strip.job_cores)} of {fmt.number(strip.allowed_cores)} allowed cores"
        if strip.job_cores is not None
        else ""
    )
    memory = (
        f"{fmt.bytes_(strip.mem_used_bytes)} of {fmt.bytes_(strip.mem_total_bytes)}"
        if strip.mem_used_bytes is not None
        else ""
    )
    shm = (
        f"{fmt.bytes_(strip.shm_used_bytes)} of {fmt.bytes_(strip.shm_total_bytes)}"
        if strip.shm_used_bytes is not None
        else ""
    )
    pairs = [
        ("busy", cores),
        ("this job", job),
        ("CPU steal", _if(strip.steal_pct, fmt.percent)),
        ("throttled by the CPU quota", _if(strip.throttled_pct, fmt.percent)),
        ("memory", memory),
        ("/dev/shm", shm),
        ("disk reads", _if(strip.disk_read_mb_s, lambda x: f"{fmt.number(round(x, 2))} MB/s")),
        ("disk busy", _if(strip.disk_busy_pct, fmt.percent)),
        ("network", _if(strip.net_mb_s, lambda x: f"{fmt.number(round(x, 2))} MB/s")),
    ]
    return [(label, value) for label, value in pairs if value]


def gpu_word(strip: GpuStrip) -> str:
    """`GPU 9`, and where there are several hosts `GPU 9 (node1, 1)`."""
    return f"GPU {strip.index} ({strip.place})" if strip.place else f"GPU {strip.index}"


def gpu(strip: GpuStrip) -> list[tuple[str, str]]:
    """Returns the rows of one GPU as last seen. Values not measured are dashes, so that GPUs line up in a table."""
    memory = (
        f"{fmt.bytes_(strip.mem_used_bytes)} of {fmt.bytes_(strip.mem_total_bytes)}"
        if strip.mem_used_bytes is not None
        else fmt.DASH
    )
    if strip.instances:
        memory = f"{memory} ({strip.instances})"
    power = (
        f"{fmt.number(strip.power_w)} of {fmt.number(strip.power_limit_w)} W" if strip.power_w is not None else fmt.DASH
    )
    clock = (
        f"{fmt.number(strip.sm_clock_mhz)} of {fmt.number(strip.sm_clock_max_mhz)} MHz"
        if strip.sm_clock_mhz is not None
        else fmt.DASH
    )
    temperature = f"{fmt.number(strip.temp_c)} °C" if strip.temp_c is not None else fmt.DASH
    return [
        ("memory", memory),
        ("power", power),
        ("SM clock", clock),
        ("temperature", temperature),
        ("PCIe", _link(strip)),
        ("kernel active", fmt.percent(strip.util_pct)),
        ("SM, Tensor Core active", _at_work(strip)),
        ("noticed", strip.trouble or fmt.DASH),
    ]


def gpu_table(strips: Sequence[GpuStrip]) -> tuple[list[str], list[list[str]]]:
    """Heads, and a row for each GPU: the columns of `gpu` in which one of them has a value."""
    rows = [gpu(strip) for strip in strips]
    columns = [n for n in range(len(rows[0])) if any(row[n][1] != fmt.DASH for row in rows)] if rows else []
    return [rows[0][n][0] for n in columns], [[row[n][1] for n in columns] for row in rows]


def _link(strip: GpuStrip) -> str:
    """`gen 4 x16`, as it was then: idle links fall back."""
    if strip.pcie_gen is None or strip.pcie_width is None:
        return fmt.DASH
    return f"gen {strip.pcie_gen:.0f} x{strip.pcie_width:.0f}"


def _at_work(strip: GpuStrip) -> str:
    """The GPU's own activity counter (Hopper and later): a resident kernel may still wait."""
    if strip.sm_active_pct is None:
        return fmt.DASH
    return f"{fmt.percent(strip.sm_active_pct)}, {fmt.percent(strip.tensor_active_pct)}"


def flat(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested facts as dotted keys and short values; lists of plain values on one line."""
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{name}.")
        elif value is None or value in ({}, [], ""):
            yield name, fmt.DASH
        elif isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value):
            yield name, ", ".join(map(str, value))
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _if(value: float | None, write: Callable[[float], str]) -> str:
    return write(value) if value is not None else ""
