"""Builds a strip for each rank (its phase, since when, its latest step time) and one for each host."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rn50_advisor.advisor.analysis.gpu.gpu_ranks import gpu_places
from rn50_advisor.advisor.analysis.host.node_window import host_strip, process_by_rank
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.recording import NODE_PIDS, Node, Recording
from rn50_advisor.advisor.model.report import GpuStrip, HostStrip, NodeStrip, RankStrip


# Hosts of a job that ran on several: their activity and their ranks.
def node_strips(recording: Recording) -> tuple[NodeStrip, ...]:
    return tuple(_strip(node, recording) for node in recording.nodes)


def shown_strip(recording: Recording) -> HostStrip | None:
    """The strip of the host whose samples represent the job."""
    node = recording.shown_node
    return host_strip(recording) if node is None else _named(node)


def host_by_rank(recording: Recording) -> Mapping[int, str]:
    return {rank: node.host for node in recording.nodes for rank in node.ranks}


def with_places(strips: tuple[GpuStrip, ...], recording: Recording) -> tuple[GpuStrip, ...]:
    """Adds host and index on the host to each strip: across several hosts the job numbers all GPUs consecutively."""
    places = gpu_places(recording)
    return tuple(
        replace(strip, place=f"{places[strip.index][0]}, {places[strip.index][1]}", host=places[strip.index][0])
        if strip.index in places
        else strip
        for strip in strips
    )


def _strip(node: Node, recording: Recording) -> NodeStrip:
    clock, started_ns = node.clock, recording.meta.started_ns
    return NodeStrip(
        host=node.host,
        ranks=node.ranks,
        strip=_named(node),
        clock=clock.basis,
        clock_offset_s=clock.offset_ns / 1e9,
        clock_uncertainty_s=clock.uncertainty_ns / 1e9,
        lost_after_s=None if node.lost_ns is None else (node.lost_ns - started_ns) / 1e9,
        shown=node.shown,
    )


def _named(node: Node) -> HostStrip | None:
    strip = host_strip(node.recording)
    return None if strip is None else replace(strip, name=node.host)


_RECENT_STEPS = 20  # a rank's strip shows their median time


def rank_strips(
    recording: Recording, everything: Mapping[int, RankSteps], accounts: StepAttribution | None
) -> tuple[RankStrip, ...]:
    strips, hosts = [], host_by_rank(recording)
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        phase, step, since = recording.positions.get(rank, ("start", 0, recording.meta.last_ns))
        steps = everything.get(rank)
        alive = process.ended_ns is None and recording.meta.ended_ns is None
        strips.append(
            RankStrip(
                rank=rank,
                pid=process.pid % NODE_PIDS,
                alive=alive,
                phase=phase if alive else _ending(process.exit_code, process.exit_signal),
                phase_for_s=max(0.0, (recording.meta.last_ns - since) / 1e9) if alive else 0.0,
                step=step,
                step_s=float(np.median((steps.length / steps.count)[-_RECENT_STEPS:])) if steps else None,
                late_share=accounts.late_share.get(rank) if accounts else None,
                host=hosts.get(rank, ""),
            )
        )
    return tuple(strips)


def _ending(code: int | None, number: int | None) -> str:
    if number:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return "ended" if not code else f"exit {code}"
