"""Autograd nodes are counted in the passes of clocked steps, and in evaluations that record gradients."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.rank.steps.autograd_nodes import COUNTS_MAX
from step_loops import EVAL, MS, Loop, mode


@pytest.fixture
def loop():
    return Loop()


def in_memory(loop):
    """A step without a loader."""
    loop.train_on_batch()


@pytest.mark.parametrize(("made", "graphs"), [(5, 3), (0, 0)])
def test_batches_of_an_evaluation_that_make_a_graph_are_counted(loop, made, graphs):
    nodes = [0]
    loop.account.graph_nodes = lambda: nodes[0]
    loop.step()
    for _ in range(3):
        loop.fetch(EVAL, evaluating=True)
        nodes[0] += made
    loop.exhaust(EVAL, evaluating=True)
    nodes[0] += 7  # of the training, which nobody counts
    loop.step()
    assert (loop.account.evaluated_batches.batches, loop.account.evaluated_batches.with_gradients) == (3, graphs)


@pytest.mark.parametrize(("passes", "graphs"), [(3, 1), (1, 1), (0, 0)])
@pytest.mark.parametrize("with_loader", [False, True])
def test_an_evaluation_without_a_loader_that_makes_a_graph_is_counted(loop, passes, graphs, with_loader):
    """Until the next backward pass the forward pass of the training makes nodes, too; until a fetch nothing does."""
    nodes = nodes_of(loop)

    def train():
        if with_loader:
            loop.fetch()
        nodes[0] += 20
        in_memory(loop)

    for _ in range(5):
        train()
    mode(loop)
    loop.account.evaluation_begin()
    nodes[0] += 20 * passes
    loop.spend(80)
    for _ in range(2):
        train()
    assert (loop.account.evaluated_batches.batches, loop.account.evaluated_batches.with_gradients) == (1, graphs)


def nodes_of(loop):
    """The number of autograd's nodes so far, in a list. The clocks of every step are read."""
    nodes = [1000]
    loop.account.steps_to_clock = lambda: 0
    loop.account.graph_nodes = lambda: nodes[0]
    return nodes


def test_the_nodes_of_forward_and_backward_are_counted_with_their_time(loop):
    nodes = nodes_of(loop)
    for _ in range(4):  # accumulation of two micro-batches; the first step is not counted
        for _ in range(2):
            loop.fetch()
            nodes[0] += 5
            loop.forward()
            nodes[0] += 1  # a layer that the backward pass computes again
            loop.backward()
        nodes[0] += 100  # of an optimizer
        loop.optimize()
        nodes[0] += 100  # of what the loop logs
    loop.fetch()
    assert (loop.account.nodes.steps, loop.account.nodes.nodes) == (3, 3 * 12)
    assert loop.account.nodes.low_ns() == 2 * (5 + 7) * MS // 12


def test_the_nodes_of_a_loop_without_loader_are_counted(loop):
    nodes = nodes_of(loop)
    for _ in range(8):
        nodes[0] += 6
        loop.train_on_batch()
    steps, counted = loop.account.nodes.steps, loop.account.nodes.nodes
    assert steps and counted == 6 * steps


def test_counts_of_nodes_cover_a_long_run_and_stay_few(loop):
    nodes = nodes_of(loop)
    for step in range(5 * COUNTS_MAX):
        nodes[0] += 6 + step // COUNTS_MAX
        loop.train_on_batch()
    counts = loop.account.nodes.by_step
    assert COUNTS_MAX // 2 <= len(counts) < COUNTS_MAX
    assert counts[0][0] < 20 and counts[-1][0] > 5 * COUNTS_MAX - 20
    assert {count for _, count in counts} == {6, 7, 8, 9, 10}


def test_the_nodes_of_an_evaluation_are_not_those_of_a_step(loop):
    nodes = nodes_of(loop)
    loop.step()
    for _ in range(3):
        for _ in range(2):
            loop.fetch(EVAL, evaluating=True)
            nodes[0] += 50
        loop.exhaust(EVAL, evaluating=True)
        loop.fetch()
        nodes[0] += 5
        loop.train_on_batch()
    loop.fetch()
    assert loop.account.nodes.nodes == 5 * loop.account.nodes.steps == 15


def test_the_time_of_a_node_is_that_of_the_quickest_tenth(loop):
    nodes = nodes_of(loop)
    for n in range(21):
        loop.fetch()
        nodes[0] += 1
        loop.forward(ms=100 - n)
        loop.backward(ms=0)
        loop.optimize()
    loop.fetch()
    assert loop.account.nodes.low_ns() == 82 * MS


def test_a_thread_that_takes_over_has_its_own_nodes(loop):
    nodes = nodes_of(loop)
    loop.step()
    loop.fetch()
    nodes[0] = 3
    loop.account.goes_on_in(2, None)
    nodes[0] += 5
    loop.train_on_batch()
    loop.fetch()
    assert loop.account.nodes.nodes == 5
