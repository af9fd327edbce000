"""The hosts of a job that ran on several: what each did meanwhile, and which ranks are on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rn50_advisor.advisor.analysis.gpu.gpu_ranks import gpu_places
from rn50_advisor.advisor.analysis.host.node_window import host_strip
from rn50_advisor.advisor.model.recording import Node, Recording
from rn50_advisor.advisor.model.report import GpuStrip, HostStrip, NodeStrip


def node_strips(recording: Recording) -> tuple[NodeStrip, ...]:
    return tuple(_strip(node, recording) for node in recording.nodes)


def shown_strip(recording: Recording) -> HostStrip | None:
    """The host whose samples stand for the job."""
    node = recording.shown_node
    return host_strip(recording) if node is None else _named(node)


def host_by_rank(recording: Recording) -> Mapping[int, str]:
    return {rank: node.host for node in recording.nodes for rank in node.ranks}


def with_places(strips: tuple[GpuStrip, ...], recording: Recording) -> tuple[GpuStrip, ...]:
    """GPUs of several hosts are numbered through; each host has numbers of its own."""
    places = {index: f"{host}, {number}" for index, (host, number) in gpu_places(recording).items()}
    return tuple(replace(strip, place=places.get(strip.index, "")) for strip in strips)


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
