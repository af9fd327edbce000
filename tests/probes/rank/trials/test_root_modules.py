"""The model that trains is changed before its first forward pass and runs in contexts; after a failure it is as it was."""

from __future__ import annotations

import copy
import inspect
import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.trials.root_modules import ChangedModel, EnteredContext, RootModules
from rn50_advisor.probes.rank.trials.trial_request import Outcomes, Refused

torch = pytest.importorskip("torch")
Make = Callable[..., RootModules]
CHANNELS_LAST = {
    "kind": "model",
    "call": "model.to",
    "arguments": {"memory_format": {"source": "torch.channels_last"}},
}
AUTOCAST = {"kind": "context", "call": "torch.autocast", "positional": ["cpu", {"source": "torch.bfloat16"}]}
COMPILE = {"kind": "model", "call": "torch.compile", "positional": [{"source": "model"}]}


class Net(torch.nn.Module):
    """`seen`: of each forward pass, autocast's dtype, and whether input and weights are channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.seen: list[tuple[Any, ...]] = []
        self.fails: BaseException | None = None

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        """Its documentation."""
        half = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        if self.fails is not None and half is not None:
            raise self.fails
        last = [each.is_contiguous(memory_format=torch.channels_last) for each in (x, self.conv.weight)]
        self.seen.append((half, *last))
        return torch.nn.functional.dropout(self.conv(x)) * scale


class Outer(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> Any:
        return {"out": self.inner(*args), "more": [1]}


def batch() -> Any:
    return torch.arange(2 * 3 * 6 * 6, dtype=torch.float32).reshape(2, 3, 6, 6) / 100


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Installs changes and contexts as a rank does; all patches are gone afterwards."""
    ddp = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(ddp, "__init__", ddp.__init__)
    untouched = vars(torch.nn.Module)["__call__"]
    made: list[RootModules] = []

    def install(*changes: Any, on: bool = True) -> RootModules:
        recorder: Any = SimpleNamespace(torch=torch, worker=None, active=True, failed=lambda: None)
        roots = RootModules(recorder, Outcomes(len(changes)))
        for index, change in enumerate(changes):
            if change["kind"] == "model":
                roots.changes.append(ChangedModel(index, change))
            else:
                roots.contexts.append(EnteredContext(index, change))
                roots.contexts[-1].on = on
        roots.install()
        made.append(roots)
        return roots

    yield install
    for roots in reversed(made):
        roots.found_all()
    assert vars(torch.nn.Module)["__call__"] is untouched


def facts(roots: RootModules) -> tuple[dict[int, int], dict[int, str]]:
    found = roots._outcomes.facts()
    return {index: times for index, times in found["applied"]}, dict(found["refused"])  # noqa: C416


def test_the_outermost_module_in_training_is_changed_before_its_first_forward_pass(make: Make) -> None:
    roots, teacher, inner = make(CHANNELS_LAST, AUTOCAST), Net().eval(), Net()
    model, frozen = Outer(inner), Net().requires_grad_(False)
    with torch.no_grad():
        teacher(batch())
        model(batch())
    teacher(batch())
    frozen(batch())
    out = model(batch())
    assert inner.seen == [(None, False, False), (torch.bfloat16, True, True)]
    assert out["out"].dtype is torch.float32 and out["more"] == [1]
    assert teacher.seen == 2 * [(None, False, False)] and frozen.seen == [(None, False, False)]
    roots.found_all()
    assert facts(roots) == ({0: 1, 1: 1}, {})
    model(batch()), inner(batch())
    assert inner.seen[2:] == [(torch.bfloat16, True, True), (None, False, True)], "its own call is not the model's"


def test_several_models_of_a_job_are_changed(make: Make) -> None:
    roots, models = make(AUTOCAST), [Net(), Net()]
    for model in models:
        model(batch())
    assert [model.seen[0][0] for model in models] == 2 * [torch.bfloat16]
    assert len(roots._roots) == 2


def test_a_context_is_switched_between_forward_passes(make: Make) -> None:
    roots, model = make(AUTOCAST, on=False), Net()
    for on in (False, True, True, False):
        roots.contexts[0].on = on
        model(batch())
    assert [half for half, *_ in model.seen] == [None, torch.bfloat16, torch.bfloat16, None]


def test_a_forward_pass_that_fails_in_a_context_is_done_again_without_it_and_with_the_same_numbers(make: Make) -> None:
    alone = Net()
    torch.manual_seed(3)
    expected = alone(batch())
    roots, model = make(AUTOCAST), Net()
    model.load_state_dict(alone.state_dict())
    model.fails = RuntimeError("no half here")
    torch.manual_seed(3)
    assert torch.equal(model(batch()), expected)
    model(batch())
    assert [half for half, *_ in model.seen] == [None, None] and not roots.contexts[0].on
    assert facts(roots) == ({0: 0}, {0: "RuntimeError: no half here"})


def test_the_jobs_own_exception_is_its_own_and_leaves_the_context(make: Make) -> None:
    make(AUTOCAST)
    model = Net()
    model(batch())
    model.fails = KeyError("the job's")
    with pytest.raises(KeyError, match="the job's") as caught:
        model(batch())
    ours = [entry for entry in caught.traceback if "probes/rank" in str(entry.path)]
    assert not torch.is_autocast_enabled("cpu") and len(ours) <= 3


def test_a_changed_model_is_copied_pickled_and_inspected_as_before(make: Make) -> None:
    make(AUTOCAST)
    model = Net()
    model(batch())
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.conv.weight.zero_()
        twin.conv.bias.zero_()
    assert not twin(batch()).any() and model(batch()).any()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert (
        type(loaded) is Net
        and loaded.forward.__func__ is Net.forward
        and model.state_dict().keys() == twin.state_dict().keys()
    )
    assert inspect.signature(model.forward) == inspect.signature(Net().forward)
    assert model.forward.__doc__ == "Its documentation."


def test_a_model_gets_its_format_before_it_is_wrapped_for_ranks(make: Make, tmp_path: Any) -> None:
    roots, model = make(CHANNELS_LAST), Net()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
        wrapped(batch()).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    assert model.seen == [(None, True, True)] and facts(roots) == ({0: 1}, {})


def test_a_model_is_compiled_in_place(make: Make) -> None:
    roots, model = make({**COMPILE, "arguments": {"backend": "eager"}}), Net()
    model(batch())
    assert model._compiled_call_impl is not None and facts(roots) == ({0: 1}, {})
    assert vars(torch.nn.Module)["__call__"].__module__ == "torch.nn.modules.module", "dynamo meets no wrapper"


@pytest.mark.parametrize("fails", ["at once", "in its first forward pass"])
def test_a_model_that_cannot_be_compiled_runs_as_it_was(make: Make, fails: str) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler")

    torch._dynamo.reset()
    roots, model = make(COMPILE), Net()
    roots.changes[0]._arguments = {"backend": backend if fails != "at once" else "no such backend"}
    assert model(batch()).shape == (2, 4, 4, 4)
    assert model._compiled_call_impl is None and 0 in facts(roots)[1]


@pytest.mark.parametrize("compiled", ["by the job", "in place by the job", "by the trial"])
def test_contexts_lie_outside_of_compiled_code(make: Make, compiled: str) -> None:
    torch._dynamo.reset()
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    layer = torch.nn.Sequential(torch.nn.Linear(2, 2))
    roots = make(AUTOCAST, *([COMPILE] if compiled == "by the trial" else []), on=False)
    called = layer
    if compiled == "by the job":
        called = torch.compile(Outer(layer), backend=backend, fullgraph=True)
    elif compiled == "in place by the job":
        called.compile(backend=backend, fullgraph=True)
    else:
        roots.changes[0]._arguments = {"backend": backend, "fullgraph": True}
    for times, on in enumerate((False, True, True, False, True)):
        roots.contexts[0].on = on
        if times == 2:
            roots.found_all()
        out = called(torch.ones(1, 2))
        assert (out["out"] if isinstance(out, dict) else out).dtype is torch.float32
    assert len(graphs) == 2, "one for each state of autocast"
    assert facts(roots) == (dict.fromkeys(range(1 + len(roots.changes)), 1), {})


def test_a_job_that_compiles_its_step_runs_on_without_the_contexts(make: Make) -> None:
    torch._dynamo.reset()
    roots, layer = make(AUTOCAST), torch.nn.Linear(2, 2)
    step = torch.compile(lambda x: layer(x) * 2, backend="eager", fullgraph=True)
    assert step(torch.ones(1, 2)).requires_grad
    roots.found_all()
    step(torch.ones(1, 2)).sum().backward()
    assert 0 in facts(roots)[1]


def test_what_cannot_be_changed_is_refused(make: Make) -> None:
    scripted = torch.jit.script(torch.nn.Linear(2, 2))
    roots = make(AUTOCAST)
    scripted(torch.zeros(1, 2))
    assert facts(roots)[1] == {0: "the model is a scripted one"}
    with pytest.raises(Refused, match="no method of a model"):
        ChangedModel(0, {"kind": "model", "call": "os.system"})
    unknown = make({"kind": "model", "call": "model.no_such_method"})
    Net()(batch())
    assert "no_such_method" in facts(unknown)[1][0]
    idle = make(AUTOCAST)
    idle.found_all()
    assert "no module ran in training mode" in facts(idle)[1][0]
