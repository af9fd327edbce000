"""A recording: its events by the kind of their documents, and the node that its samples are of."""

from __future__ import annotations

from dataclasses import replace

from nodes import two_nodes
from recordings import plan, recording
from rn50_advisor.advisor.model.recording import Clock, Event, Node, data_of, events_of, happened
from rn50_advisor.probes.documents.event_documents import KINDS, ShedProbe, StackSample


def test_an_event_has_the_kind_of_its_document() -> None:
    event = happened(ShedProbe, {"probe": "gpu"}, t_ns=5, pid=7, rank=1)
    assert (event.kind, event.t_ns, event.pid, event.rank) == (KINDS[ShedProbe], 5, 7, 1)
    assert data_of(event, ShedProbe) == {"probe": "gpu"} and data_of(event, StackSample) is None


def test_events_of_one_kind_keep_their_order_and_unknown_ones_are_nobodys() -> None:
    shed = [happened(ShedProbe, {"probe": name}, t_ns=n) for n, name in enumerate(("gpu", "disk"))]
    newer = Event(1, "a kind of the future", None, None, {})
    assert events_of((shed[1], newer, shed[0]), ShedProbe) == [shed[1], shed[0]]
    assert events_of((newer,), StackSample) == [] and data_of(newer, ShedProbe) is None


def test_the_shown_node_is_the_one_marked_so() -> None:
    first, second = two_nodes({0: plan(3), 1: plan(3)})
    nodes = (Node(0, "a", (0,), first), Node(1, "b", (1,), second, Clock("collectives"), shown=True))
    assert replace(recording({0: plan(3)}), nodes=nodes).shown_node == nodes[1]
    assert recording({0: plan(3)}).shown_node is None
