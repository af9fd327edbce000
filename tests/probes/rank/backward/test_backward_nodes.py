"""Backward passes timed node by node: what their classes take and write, and that nothing of the job changes or is kept."""

from __future__ import annotations

import gc
import itertools
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rn50_advisor.probes.rank.backward import backward_graph, backward_nodes  # noqa: E402
from rn50_advisor.probes.rank.backward.backward_nodes import NODES_MAX, STEPS, BackwardNodes  # noqa: E402
from rn50_advisor.probes.rank.facts.process_facts import Facts  # noqa: E402

TIMES, ROWS, WIDTH = 9, 4, 5


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return Facts(str(tmp_path))


def timed(facts: Facts, *losses: Any) -> dict[str, Any]:
    """The classes of the backward passes of one step, by name."""
    nodes = BackwardNodes(facts, set)
    assert not nodes.turn(STEPS[0] - 1)
    assert nodes.turn(STEPS[0])
    for loss in losses:
        nodes.backward_begins(loss)
        loss.backward()
        nodes.backward_ends()
    assert not nodes.turn(STEPS[0] + 1)
    found = facts.values.get("backward_nodes")
    return {} if found is None else {each["name"]: each for each in found["classes"]}


def sequence() -> Any:
    return torch.randn(ROWS, TIMES, WIDTH, requires_grad=True) * 2


def test_parts_taken_one_by_one_write_the_whole_tensor_each(facts: Facts) -> None:
    x = sequence()
    found = timed(facts, torch.stack([x[:, t] for t in range(TIMES)]).sum())["SelectBackward0"]
    assert (found["count"], found["needed"]) == (TIMES, ROWS * TIMES * WIDTH)
    assert found["written"] == TIMES * found["needed"]


def test_parts_of_different_tensors_need_them_all(facts: Facts) -> None:
    x, y = sequence(), sequence()
    found = timed(facts, (x[:, 1:3] + x[:, 2:4] + y[:, 1:3]).sum())["SliceBackward0"]
    assert (found["written"], found["needed"]) == (3 * ROWS * TIMES * WIDTH, 2 * ROWS * TIMES * WIDTH)


def test_parts_of_a_parameter_are_parts_of_a_leaf(facts: Facts) -> None:
    weight = torch.nn.Parameter(torch.randn(ROWS, WIDTH))
    found = timed(facts, (weight[0] * weight[1]).sum())["SelectBackward0"]
    assert (found["written"], found["needed"]) == (2 * ROWS * WIDTH, ROWS * WIDTH)


def test_writes_into_one_tensor_copy_its_gradient_each(facts: Facts) -> None:
    x, outputs = sequence(), [torch.zeros(ROWS, TIMES, WIDTH) for _ in range(2)]
    for out in outputs:
        for t, part in enumerate(x.unbind(1)):
            out[:, t] = part
    found = timed(facts, (outputs[0] * outputs[1]).sum())
    assert found["UnbindBackward0"]["written"] == 0
    copies = found["torch::autograd::CopySlices"]
    assert copies["count"] == 2 * TIMES
    assert (copies["written"], copies["needed"]) == (2 * TIMES * ROWS * TIMES * WIDTH, 2 * ROWS * TIMES * WIDTH)


def test_under_anomaly_detection_the_elements_of_all_gradients_are_counted(facts: Facts) -> None:
    weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))

    def searched() -> int:
        timed(facts, (torch.randn(ROWS, WIDTH) @ weight).tanh().sum())
        found = facts.values["backward_nodes"]["searched"]
        assert isinstance(found, int)
        return found

    assert searched() == 0
    with torch.autograd.detect_anomaly(check_nan=False):
        assert searched() == 0
    with torch.autograd.detect_anomaly():
        assert searched() == 2 * ROWS * WIDTH + WIDTH * WIDTH  # of the sum, of tanh, and of the weight


def test_gradients_that_torch_does_not_describe_are_not_counted_as_none(
    facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backward_nodes, "hasattr", lambda node, name: name == "_sequence_nr", raising=False)
    with torch.autograd.detect_anomaly():
        timed(facts, (sequence() * 2).sum(), (sequence() * 2).sum())
    assert facts.values["backward_nodes"]["passes"] == 2 and "searched" not in facts.values["backward_nodes"]


def test_the_times_of_all_classes_are_those_of_the_passes(facts: Facts) -> None:
    classes = timed(facts, *((sequence()[:, t] * 3).sum() for t in range(2)))
    found = facts.values["backward_nodes"]
    assert found["passes"] == 2
    assert all(each["ns"] > 0 for each in classes.values())
    assert sum(each["ns"] for each in classes.values()) <= found["ns"]


def test_gradients_are_the_same_and_of_the_same_memory(facts: Facts) -> None:
    def gradients(nodes: BackwardNodes | None) -> list[Any]:
        torch.manual_seed(0)
        model = torch.nn.LSTM(WIDTH, 6, batch_first=True)
        out, _ = model(torch.randn(ROWS, TIMES, WIDTH))
        loss = torch.stack([out[:, t].tanh() for t in range(TIMES)]).square().sum()
        if nodes is not None:
            nodes.backward_begins(loss)
        loss.backward()
        if nodes is not None:
            nodes.backward_ends()
        return [p.grad for p in model.parameters()]

    nodes = BackwardNodes(facts, set)
    assert nodes.turn(STEPS[0])
    assert all(map(torch.equal, gradients(nodes), gradients(None)))
    assert not nodes.turn(STEPS[0] + 1)
    assert facts.values["backward_nodes"]["passes"] == 1


def test_a_function_of_the_jobs_own_with_any_attribute_is_no_leaf(facts: Facts) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.variable = 3
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    found = timed(facts, Doubled.apply(sequence())[:, 0].sum())
    assert found["DoubledBackward"]["count"] == found["MulBackward0"]["count"] == 1


def test_checkpointed_parts_count_for_the_node_that_computes_them_anew(facts: Facts) -> None:
    from torch.utils.checkpoint import checkpoint

    found = timed(facts, checkpoint(torch.tanh, sequence(), use_reentrant=True).sum())
    assert "CheckpointFunctionBackward" in found


def test_hooks_are_gone_with_the_pass_also_where_the_graph_stays(facts: Facts) -> None:
    nodes, loss = BackwardNodes(facts, set), (sequence() * 2).sum()
    nodes.turn(STEPS[0])
    nodes.backward_begins(loss)
    loss.backward(retain_graph=True)
    nodes.backward_ends()
    nodes.turn(STEPS[0] + 1)
    before = facts.values["backward_nodes"]["ns"]
    loss.backward()
    nodes._note()
    assert facts.values["backward_nodes"]["ns"] == before


def test_no_tensor_and_no_graph_is_kept(facts: Facts) -> None:
    x = sequence()
    kept = weakref.ref(x)
    timed(facts, (x[:, 0] * 3).sum())
    del x
    gc.collect()
    assert kept() is None


def test_a_pass_that_failed_leaves_no_hooks_and_spoils_no_later_one(facts: Facts) -> None:
    nodes, x = BackwardNodes(facts, set), sequence().exp()
    loss = x.square().sum()
    x.add_(1)  # was saved for the pass
    nodes.turn(STEPS[0])
    nodes.backward_begins(loss)
    with pytest.raises(RuntimeError):
        loss.backward()
    again = sequence()[:, 0].sum()
    nodes.backward_begins(again)
    again.backward()
    nodes.backward_ends()
    nodes.turn(STEPS[0] + 1)
    assert facts.values["backward_nodes"]["passes"] == 1


def test_hooks_of_a_pass_that_failed_are_gone_with_its_step(facts: Facts) -> None:
    nodes, x = BackwardNodes(facts, set), sequence().exp()
    loss = x.square().sum()
    x.add_(1)
    nodes.turn(STEPS[0])
    nodes.backward_begins(loss)
    with pytest.raises(RuntimeError):
        loss.backward()
    nodes.turn(STEPS[0] + 1)
    spent = nodes._ns
    with pytest.raises(RuntimeError):
        loss.backward()
    assert nodes._ns == spent


def test_sizes_that_torch_does_not_tell_are_not_nothing(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(node: Any, place: int) -> int:
        raise AttributeError("_input_metadata")

    monkeypatch.setattr(backward_nodes, "elements_made", unknown)
    nodes, loss = BackwardNodes(facts, set), sequence()[:, 0].sum()
    nodes.turn(STEPS[0])
    nodes.backward_begins(loss)
    loss.backward()
    nodes.backward_ends()
    assert not any(nodes.turn(step) for step in STEPS)
    assert "backward_nodes" not in facts.values
    assert facts.values["unpatched"] == ["nodes of backward passes: AttributeError"]


def test_a_large_graph_is_left_alone(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_nodes, "NODES_MAX", 20)
    x = sequence()
    assert timed(facts, torch.stack([x[:, t % TIMES] for t in range(30)]).sum()) == {}
    assert NODES_MAX > 20


def test_on_another_device_nothing_is_timed(facts: Facts) -> None:
    loss = (torch.ones(3, device="meta", requires_grad=True) * 2).sum()
    assert timed(facts, loss) == {}


def test_a_profiler_of_the_jobs_sees_no_hooks(facts: Facts) -> None:
    nodes = BackwardNodes(facts, set)
    nodes.turn(STEPS[0])
    with torch.profiler.profile():
        loss = sequence().sum()
        nodes.backward_begins(loss)
        assert not nodes._handles
        loss.backward()
        nodes.backward_ends()
    nodes.turn(STEPS[0] + 1)
    assert "backward_nodes" not in facts.values


def test_only_a_few_steps_are_timed(facts: Facts) -> None:
    nodes = BackwardNodes(facts, set)
    assert [step for step in range(1000) if nodes.turn(step)] == list(STEPS)


def test_time_for_what_no_optimizer_has_is_told_apart(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A teacher's nodes lead to nothing that learns; a judge's lead to the model, but its weight learns nothing."""
    nets = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)]
    student, teacher, judge = nets
    nodes = BackwardNodes(facts, lambda: {id(student.weight)})
    ticks = iter(range(10_000))
    monkeypatch.setattr(backward_nodes, "perf_counter_ns", lambda: next(ticks))
    x = torch.randn(ROWS, WIDTH)
    nodes.turn(STEPS[0])
    loss = (judge(student(x)) - teacher(x)).sum()
    nodes.backward_begins(loss)
    loss.backward()
    nodes.backward_ends()
    nodes.turn(STEPS[0] + 1)
    found = facts.values["backward_nodes"]
    # of the teacher a product, and both its weight and the judge's transposed; partly: the judge's product, and the difference
    assert (found["unneeded_ns"], found["partly_ns"]) == (3, 2)
    assert sum(each["ns"] for each in found["classes"]) > 5


def test_time_is_all_needed_where_no_optimizer_gets_anything(facts: Facts) -> None:
    """The optimizer has copies or shards of what is behind the loss."""
    layer = torch.nn.Linear(WIDTH, WIDTH)
    timed(facts, layer(torch.randn(ROWS, WIDTH)).sum())
    found = facts.values["backward_nodes"]
    assert (found["unneeded_ns"], found["partly_ns"]) == (0, 0)


def test_gradients_of_inputs_are_needed(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr(backward_nodes, "perf_counter_ns", lambda: next(ticks))
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    timed(facts, torch.nn.Linear(WIDTH, WIDTH)(x).sum())
    found = facts.values["backward_nodes"]
    # of no optimizer's weight alone: transposing it; of it and of the input: the product
    assert (found["unneeded_ns"], found["partly_ns"]) == (1, 1)


CLASSES, ROWS_OF_LOSS = 70, 40
IGNORED = 30  # of the rows


class Tagger(torch.nn.Module):
    """Mixes its rows, so that all of them get gradients, before layers that take each row by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Parameter(torch.randn(ROWS_OF_LOSS, ROWS_OF_LOSS))
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 70), torch.nn.GELU(), torch.nn.Linear(70, CLASSES))

    def forward(self, x: Any) -> Any:
        return self.head(self.mix @ x)


def targets() -> Any:
    found = torch.randint(CLASSES, (ROWS_OF_LOSS,))
    found[:IGNORED] = -100
    return found


def ignored(facts: Facts, loss: Any) -> tuple[float, list[int]]:
    """Share of the time, and rows of the loss."""
    timed(facts, loss)
    found = facts.values["backward_nodes"]
    return found["ignored_ns"] / found["ns"], found["loss_rows"]


def test_rows_that_a_loss_ignores_take_their_share_of_the_layers_before_it(facts: Facts) -> None:
    loss = torch.nn.functional.cross_entropy(Tagger()(torch.randn(ROWS_OF_LOSS, 8)), targets())
    share, rows = ignored(facts, loss)
    assert rows == [ROWS_OF_LOSS, IGNORED]
    assert 0.0 < share < IGNORED / ROWS_OF_LOSS, "not of the layer that mixes rows"


def test_reading_a_gradient_makes_no_tensor_of_its_size(facts: Facts) -> None:
    """Logits of many words are often the largest tensor of a job."""
    nodes = BackwardNodes(facts, set)
    gradient = torch.zeros(50, 4000)
    gradient[:20, 7] = 1.0
    own, made = gradient.untyped_storage().data_ptr(), list[int]()

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            tensors = [each for each in (out if isinstance(out, tuple) else (out,)) if isinstance(each, torch.Tensor)]
            made.extend(each.numel() for each in tensors if each.untyped_storage().data_ptr() != own)
            return out

    with Sizes():
        nodes._read_rows(gradient, "LogSoftmaxBackward0", 0.0)
    assert nodes._loss_rows == [50, 30] and 0 < max(made) <= 50


def test_a_loss_that_counts_all_rows_ignores_none(facts: Facts) -> None:
    loss = torch.nn.functional.cross_entropy(Tagger()(torch.randn(ROWS_OF_LOSS, 8)), targets().clamp_min(0))
    assert ignored(facts, loss) == (0.0, [ROWS_OF_LOSS, 0])


def test_rows_that_the_job_chooses_by_their_loss_are_computed_for_it(facts: Facts) -> None:
    """Hard examples alone: which they are is known once all are computed."""
    logits = Tagger()(torch.randn(ROWS_OF_LOSS, 8))
    losses = torch.nn.functional.cross_entropy(logits, targets().clamp_min(0), reduction="none")
    assert ignored(facts, losses.topk(4).values.mean()) == (0.0, [0, 0])


def unselected(facts: Facts, loss: Any) -> float:
    """Share of the time."""
    timed(facts, loss)
    found = facts.values["backward_nodes"]
    return float(found["unselected_ns"] / found["ns"])


@pytest.mark.parametrize("form", ["select", "slice", "index", "index_select", "mask"])
def test_rows_that_a_selection_leaves_out_take_their_share_of_the_layers_before_it(facts: Facts, form: str) -> None:
    net, few = Tagger(), torch.arange(4)
    found = net(torch.randn(ROWS_OF_LOSS, 8))
    forms = {
        "select": lambda: found[-1],
        "slice": lambda: found[:4],
        "index": lambda: found[few],
        "index_select": lambda: found.index_select(0, few),
        "mask": lambda: found[torch.arange(ROWS_OF_LOSS) < 4],
    }
    share = unselected(facts, forms[form]().square().mean())
    assert 0.0 < share < 1.0 - 1.0 / ROWS_OF_LOSS, "other nodes take time, too"


def both_parts(net: Any, x: Any) -> Any:
    found = net(x)
    return found[:4].mean() + found[4:].square().mean()


def whole_elsewhere(net: Any, x: Any) -> Any:
    found = net(x)
    return found[:4].mean() + found.square().mean()


def of_an_output(net: Any, x: Any) -> Any:
    """The other columns of each row are computed for nothing, but with the same product."""
    return net(x)[:, :4].mean()


def after_layers_that_mix(net: Any, x: Any) -> Any:
    return net(x).cumsum(0)[-1].mean()


def neighbours(net: Any, x: Any) -> Any:
    """A graph convolution: each row is a sum of others."""
    return (torch.rand(ROWS_OF_LOSS, ROWS_OF_LOSS) @ net(x))[:4].mean()


def recurrent(net: Any, x: Any) -> Any:
    states, _ = torch.nn.LSTM(8, 8)(net.mix @ x)
    return states[-1].mean()


def rows_without_a_loss(net: Any, x: Any) -> Any:
    """Which these are is known once all are computed."""
    return torch.where(torch.arange(ROWS_OF_LOSS)[:, None] < 4, net(x), 0.0).mean()


@pytest.mark.parametrize(
    "loss",
    [
        both_parts,
        whole_elsewhere,
        of_an_output,
        after_layers_that_mix,
        neighbours,
        recurrent,
        rows_without_a_loss,
    ],
)
def test_rows_that_something_needs_are_not_left_out(facts: Facts, loss: Any) -> None:
    assert unselected(facts, loss(Tagger(), torch.randn(ROWS_OF_LOSS, 8))) == 0.0


ITEMS, OF_ITEM = 12, 6
PAIRED, SINGLE = torch.nn.Linear(2 * OF_ITEM, 8), torch.nn.Linear(OF_ITEM, 8)
NARROW, WIDER = torch.nn.Linear(2 * OF_ITEM, OF_ITEM), torch.nn.Linear(2 * OF_ITEM, 8)


def items() -> Any:
    return torch.randn(ITEMS, OF_ITEM, requires_grad=True) * 1.0


def repeated_rows(facts: Facts, loss: Any) -> float:
    """Share of the time."""
    timed(facts, loss)
    found = facts.values["backward_nodes"]
    return float(found["repeated_rows_ns"] / found["ns"])


def all_pairs(x: Any) -> Any:
    a, b = x.unsqueeze(1).repeat(1, ITEMS, 1), x.unsqueeze(0).expand(ITEMS, ITEMS, OF_ITEM)
    return PAIRED(torch.cat([a, b], dim=-1))


def edges(x: Any) -> Any:
    source, target = torch.randint(0, ITEMS, (2, 100))
    return NARROW(torch.cat([x[source], x.index_select(0, target)], dim=1))


def a_query_for_each_word(x: Any) -> Any:
    return SINGLE(x[:1].expand(40, OF_ITEM))


def both_rows_anew(x: Any) -> Any:
    return PAIRED(torch.cat([x, x.sin()], dim=1))


def few_of_the_columns(x: Any) -> Any:
    return PAIRED(torch.cat([x[:1, :2].expand(ITEMS, 2), torch.cat([x, x], dim=1)[:, 2:]], dim=1))


def wider_edges(x: Any) -> Any:
    """Taking wide rows by an index would cost more than it saves."""
    source, target = torch.randint(0, ITEMS, (2, 100))
    return WIDER(torch.cat([x[source], x[target]], dim=1))


def dropped_differently(x: Any) -> Any:
    return SINGLE(torch.nn.functional.dropout(x[:1].expand(40, OF_ITEM)))


def each_row_once(x: Any) -> Any:
    return SINGLE(x)[torch.randint(0, ITEMS, (100,))]


@pytest.mark.parametrize(
    ("layer", "needless", "nodes"),
    [
        (all_pairs, 1 - 1 / ITEMS, ["AddmmBackward0", "CatBackward0"]),
        (edges, 1 - ITEMS / 100, ["AddmmBackward0", "CatBackward0"]),
        (a_query_for_each_word, 1 - 1 / 40, ["AddmmBackward0"]),
    ],
)
def test_linear_layers_on_rows_that_are_there_several_times(
    facts: Facts, layer: Any, needless: float, nodes: list[str]
) -> None:
    loss = layer(items()).square().mean()
    shares = backward_graph.on_repeated_rows(backward_nodes.nodes_of([loss], NODES_MAX))
    assert sorted(node.name() for node in shares) == nodes
    assert list(shares.values()) == pytest.approx([needless] * len(nodes))
    assert 0.0 < repeated_rows(facts, loss) < needless, "other nodes take time, too"


@pytest.mark.parametrize("layer", [both_rows_anew, wider_edges, few_of_the_columns, dropped_differently, each_row_once])
def test_other_linear_layers(facts: Facts, layer: Any) -> None:
    assert repeated_rows(facts, layer(items()).square().mean()) == 0.0


def test_linear_operations_in_an_expensive_order_have_what_the_other_spares(facts: Facts) -> None:
    nodes = BackwardNodes(facts, set, named=lambda: {id(SINGLE.weight): "single.weight"})
    x = items().expand(40, ITEMS, OF_ITEM)
    loss = SINGLE(x * 2).mean(1).square().mean() + ((x @ x.transpose(1, 2)) @ x).square().mean()
    nodes.turn(STEPS[0])
    nodes.backward_begins(loss)
    loss.backward()
    nodes.backward_ends()
    nodes.turn(STEPS[0] + 1)
    found = facts.values["backward_nodes"]
    assert {(each["kind"], each["layer"]) for each in found["orders"]} == {
        ("products", ""),
        ("pooled", "single.weight"),
    }
    assert 0 < sum(each["ns"] for each in found["orders"]) < found["ns"], "other nodes take time, too"


def test_convolutions_of_single_channels_have_their_kernels(facts: Facts) -> None:
    layer = torch.nn.Conv1d(4, 4, 65, groups=4)
    nodes = BackwardNodes(facts, set, named=lambda: {id(layer.weight): "filter.weight"})
    loss = layer(torch.randn(2, 4, 200)).square().mean()
    nodes.turn(STEPS[0])
    nodes.backward_begins(loss)
    loss.backward()
    nodes.backward_ends()
    nodes.turn(STEPS[0] + 1)
    (found,) = facts.values["backward_nodes"]["kernels"]
    assert found.pop("ns") > 0 and found == {"dims": 1, "size": 65, "single": True, "layer": "filter.weight"}


def test_all_depthwise_layers_of_a_net_on_images_count(facts: Facts) -> None:
    layers = [torch.nn.Conv2d(4, 4, 5, padding=2, groups=4) for _ in range(2 * backward_nodes.KERNELS_MAX)]
    names = {id(layer.weight): f"layers.{n}.weight" for n, layer in enumerate(layers)}
    nodes, loss = (
        BackwardNodes(facts, set, named=lambda: names),
        torch.nn.Sequential(*layers)(torch.randn(1, 4, 9, 9)).sum(),
    )
    nodes.turn(STEPS[0])
    nodes.backward_begins(loss)
    loss.backward()
    nodes.backward_ends()
    nodes.turn(STEPS[0] + 1)
    found = facts.values["backward_nodes"]
    (kernel,) = found["kernels"]
    (spent,) = [each["ns"] for each in found["classes"] if each["name"].startswith("Convolution")]
    assert kernel == {"dims": 2, "size": 25, "single": True, "layer": "", "ns": spent}


@pytest.mark.parametrize("leaf", [False, True])
def test_fourier_transforms_have_their_lengths(facts: Facts, leaf: bool) -> None:
    x, kernel = torch.randn(3, 127, requires_grad=True), torch.randn(40, requires_grad=True)
    if not leaf:
        x = x * 1.0
    spectrum = torch.fft.rfft(x) * torch.fft.rfft(kernel, n=127)
    timed(facts, torch.fft.irfft(spectrum, n=126).sum() + torch.fft.fft(kernel, n=50).abs().sum())
    found = facts.values["backward_nodes"]
    assert {length for length, _ in found["transforms"]} == {127, 126, 50}
    assert 0 < sum(ns for _, ns in found["transforms"]) < found["ns"]


def test_many_selections_of_one_tensor_visit_its_layers_once(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    by_row = backward_graph._by_row

    def counted(node: Any) -> bool:
        seen.append("" if node is None else node.name())
        return bool(by_row(node))

    monkeypatch.setattr(backward_graph, "_by_row", counted)
    found = Tagger()(torch.randn(ROWS_OF_LOSS, 8))
    unselected(facts, sum(found[n].square().mean() for n in range(ROWS_OF_LOSS)))
    assert len(seen) < 4 * ROWS_OF_LOSS


def test_targets_that_are_ignored_are_not_left_out_a_second_time(facts: Facts) -> None:
    found = Tagger()(torch.randn(ROWS_OF_LOSS, 8))[: ROWS_OF_LOSS - 1]
    share, _ = ignored(facts, torch.nn.functional.cross_entropy(found, targets()[: ROWS_OF_LOSS - 1]))
    assert share > 0.0 and facts.values["backward_nodes"]["unselected_ns"] == 0


def test_a_gradient_that_cannot_be_read_ends_the_looks_and_not_the_job(
    facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: BackwardNodes, gradient: Any, before_loss: str, unselected: float) -> None:
        raise RuntimeError("unreadable")

    monkeypatch.setattr(BackwardNodes, "_read_rows", fails)
    net = Tagger()
    timed(facts, torch.nn.functional.cross_entropy(net(torch.randn(ROWS_OF_LOSS, 8)), targets()))
    assert net.mix.grad is not None
    assert any("nodes of backward passes: RuntimeError" in each for each in facts.values["unpatched"])


def order_of(facts: Facts) -> list[str]:
    found = facts.values["backward_nodes"]
    return [found["names"][ord(letter) - ord("A")].removesuffix("Backward0") for letter in found["order"]]


def test_the_order_is_that_of_the_forward_pass_without_leaves(facts: Facts) -> None:
    x = sequence()
    timed(facts, sum(x[:, t].exp().sum() for t in range(3)))
    loop = ["Select", "Exp", "Sum", "Add"]
    assert order_of(facts) == ["Mul", *loop, *loop, *loop]


def test_the_order_of_the_largest_pass_is_kept(facts: Facts) -> None:
    timed(facts, sequence().exp().sum(), sequence().tanh().exp().sum(), sequence().sum())
    assert order_of(facts) == ["Mul", "Tanh", "Exp", "Sum"]


def test_no_order_is_kept_of_very_many_nodes(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_nodes, "ORDERED_MAX", 3)
    timed(facts, sequence().exp().sum(), sequence().tanh().exp().sum())
    assert order_of(facts) == ["Mul", "Exp", "Sum"]


def test_one_large_node_of_a_class_does_not_move_its_median(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    monkeypatch.setattr(backward_nodes, "perf_counter_ns", lambda: 1000 * (n := next(calls)) + (n > 6) * 10**9)
    x = torch.ones(3, requires_grad=True)
    found = timed(facts, x.exp().exp().exp().exp().exp().sum())["ExpBackward0"]
    assert found["ns"] > 10**9 and found["median_ns"] == 1000


def test_without_numbers_of_the_nodes_all_else_is_known(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_nodes, "SEQUENCE_NUMBER", "no_such_method")
    assert "ExpBackward0" in timed(facts, sequence().exp().sum())
    assert order_of(facts) == [] and not facts.values.get("unpatched")
