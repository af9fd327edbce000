"""Precision, layouts and the model are seen in the first steps; after that torch's classes are as they were."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch not installed: pip install '.[train]'")
pytestmark = pytest.mark.torch

dynamo = pytest.importorskip("torch._dynamo")
from torch import nn  # noqa: E402

from rn50_advisor.probes.rank.facts.precision_facts import (  # noqa: E402
    ARMINGS_MAX,
    Precision,
    compiled_frames,
    fast_paths,
)
from rn50_advisor.probes.rank.recorder import Recorder  # noqa: E402

AUTOCAST = torch.amp.autocast_mode.autocast
OWN = (AUTOCAST.__enter__, nn.Conv2d.forward, nn.Linear.forward)


class Seen:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.failures = 0
        self.precision = Precision(torch, lambda: self.values, self.failed)
        self.step = 0

    def failed(self) -> None:
        self.failures += 1

    def refresh(self) -> None:
        self.step += 1
        self.precision.refresh(self.step)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("rn50_advisor.probes.rank.facts.precision_facts.compiled_frames", lambda: 0)
    made = Seen()
    yield made
    made.precision.forget()
    assert (AUTOCAST.__enter__, nn.Conv2d.forward, nn.Linear.forward) == OWN
    assert made.failures == 0


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )


def train(model: nn.Module, x: Any, dtype: Any = None) -> None:
    with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
        loss = model(x).sum()
    loss.backward()


def test_autocast_is_seen_when_it_is_entered(seen: Seen) -> None:
    seen.refresh()
    train(net(), torch.ones(2, 3, 8, 8), torch.bfloat16)
    assert seen.values["autocast"] == {"enabled": True, "device": "cpu", "dtype": "bfloat16"}
    assert AUTOCAST.__enter__ is OWN[0]


def test_a_loop_that_enters_none_or_switches_it_off_computes_without(seen: Seen) -> None:
    seen.refresh()
    net()(torch.ones(2, 3, 8, 8)).sum().backward()
    assert "autocast" not in seen.values  # not known before the step is over
    seen.refresh()
    assert seen.values["autocast"] == {"enabled": False}
    train(net(), torch.ones(2, 3, 8, 8))
    assert seen.values["autocast"]["enabled"] is False
    seen.refresh()
    train(net(), torch.ones(2, 3, 8, 8), torch.bfloat16)
    assert seen.values["autocast"]["enabled"] is True


def test_facts_written_twice_in_a_step_are_no_step_without_autocast(seen: Seen) -> None:
    seen.refresh()
    seen.precision.refresh(seen.step)
    assert "autocast" not in seen.values


def test_what_was_seen_stays_when_a_later_step_is_compiled(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rn50_advisor.probes.rank.facts.precision_facts.compiled_frames", lambda: 3)
    seen.refresh()
    assert nn.Conv2d.forward is OWN[1] and nn.Linear.forward is OWN[2]
    seen.refresh()
    assert "autocast" not in seen.values, "inside of a graph nobody enters it"
    assert seen.values["compiled_frames"] == 3


@pytest.mark.parametrize("inside", ["a block", "a decorator", ""])
def test_what_is_compiled_enters_autocast_while_it_is_traced(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    monkeypatch.setattr("rn50_advisor.probes.rank.facts.precision_facts.compiled_frames", compiled_frames)
    dynamo.reset()
    dynamo.utils.counters.clear()
    model = net()

    def forward(x: Any) -> Any:
        if inside != "a block":
            return model(x).sum()
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).sum()

    called = torch.autocast("cpu", torch.bfloat16)(forward) if inside == "a decorator" else forward
    seen.precision.begin()
    assert nn.Conv2d.forward is OWN[1], "dynamo would remember what stood there"
    torch.compile(called, backend="aot_eager", fullgraph=True)(torch.ones(2, 3, 8, 8)).backward()
    seen.refresh()
    assert seen.values["compiled_frames"] and "conv" not in seen.values
    assert seen.values["autocast"]["enabled"] is bool(inside)
    dynamo.reset()


def test_what_was_compiled_before_the_first_fetch_may_hold_an_autocast(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rn50_advisor.probes.rank.facts.precision_facts.compiled_frames", lambda: 3)
    seen.precision.begin()
    seen.refresh()
    assert "autocast" not in seen.values


def test_a_loop_within_autocast_as_a_whole_is_known_without_its_layers(seen: Seen) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        seen.precision.begin()
        seen.refresh()
    assert seen.values["autocast"] == {"enabled": True, "device": "cpu", "dtype": "bfloat16"}


def test_a_process_that_only_evaluates_has_autocast_back_after_a_while(seen: Seen) -> None:
    seen.precision.begin()
    for _ in range(200):
        assert AUTOCAST.__enter__ is not OWN[0]
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            pass
    assert AUTOCAST.__enter__ is OWN[0]
    seen.precision.begin()
    assert AUTOCAST.__enter__ is OWN[0] and seen.values == {}


def test_the_first_convolution_shows_layouts_and_precision(seen: Seen) -> None:
    model, x = net().to(memory_format=torch.channels_last), torch.ones(2, 3, 8, 8)
    seen.refresh()
    train(model, x, torch.bfloat16)
    conv = seen.values["conv"]
    assert (conv["input"], conv["weight"], conv["autocast"]) == ("float32", "float32", "bfloat16")
    assert (conv["input_layout"], conv["weight_layout"], conv["shape"]) == (
        "channels_first",
        "channels_last",
        [2, 3, 8, 8],
    )
    assert seen.values["linear"]["autocast"] == "bfloat16"
    seen.refresh()
    train(model, x.to(memory_format=torch.channels_last), torch.bfloat16)
    assert seen.values["conv"]["input_layout"] == "channels_last" and seen.values["conv"]["again"]
    seen.refresh()
    assert nn.Conv2d.forward is OWN[1], "twice is enough"


def test_evaluation_is_not_taken_for_training(seen: Seen) -> None:
    seen.refresh()
    with torch.no_grad():
        net()(torch.ones(2, 3, 8, 8))
    assert "conv" not in seen.values and nn.Conv2d.forward is not OWN[1]


def test_the_model_is_the_outermost_module(seen: Seen) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = net()

        def forward(self, x: Any) -> Any:
            return self.body(x)

    seen.refresh()
    Net()(torch.ones(2, 3, 8, 8)).sum().backward()
    model = seen.values["model"]
    assert model["class"].endswith("Net") and model["wrapped"] is None
    assert model["layers"]["Conv2d"] == model["layers"]["BatchNorm2d"] == 1
    assert model["parameters"] == sum(p.numel() for p in Net().parameters()) and model["dtypes"] == ["float32"]
    assert (model["channels_first_weights"], model["channels_last_weights"]) == (1, 0)


def test_a_plain_step_meets_nothing_after_the_first_ones(seen: Seen) -> None:
    for _ in range(ARMINGS_MAX + 1):
        seen.refresh()
    assert (AUTOCAST.__enter__, nn.Conv2d.forward, nn.Linear.forward) == OWN


def test_what_the_job_puts_there_itself_stays(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    seen.refresh()
    own = lambda self, x: x  # noqa: E731
    nn.Conv2d.forward = own  # type: ignore[method-assign,assignment]
    seen.refresh()
    seen.precision.forget()
    assert nn.Conv2d.forward is own
    nn.Conv2d.forward = OWN[1]  # type: ignore[method-assign]


def test_outputs_and_errors_are_those_of_the_layer(seen: Seen) -> None:
    layer, x = nn.Conv2d(3, 2, 1), torch.ones(1, 3, 2, 2)
    expected = layer(x)
    seen.refresh()
    assert torch.equal(layer(x), expected)
    seen.refresh()
    with pytest.raises(RuntimeError):
        layer(torch.ones(1, 5, 2, 2))


def test_dynamo_sees_a_plain_layer_even_where_one_is_armed_and_compiles_it_once(seen: Seen) -> None:
    dynamo.reset()
    handler, started = dynamo.callback.callback_handler, []
    callbacks = [handler.register_start_callback(lambda *about: started.append("before the recorder's"))]
    seen.refresh()
    callbacks.append(handler.register_start_callback(lambda *about: started.append("after the recorder's")))
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = torch.compile(net(), backend=backend, fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(2, 3, 8, 8)).sum().backward()
        seen.precision.disarm()
    assert len(graphs) == 1 and started == ["before the recorder's", "after the recorder's"]
    assert handler.start_callbacks == callbacks
    dynamo.reset()


def test_a_wrapper_that_the_job_kept_records_nothing(seen: Seen) -> None:
    """As accelerate's hooks do, which wrap the `forward` that they find."""
    seen.refresh()
    kept, entered = nn.Conv2d.forward, AUTOCAST.__enter__
    seen.precision.disarm()
    mode = torch.autocast("cpu", torch.bfloat16)
    kept(nn.Conv2d(3, 4, 3), torch.ones(2, 3, 8, 8))
    entered(mode)
    mode.__exit__(None, None, None)
    assert seen.values == {}


@pytest.mark.parametrize("around", ["the loss", "all but the first layers"])
def test_layers_show_whether_autocast_covers_them(seen: Seen, around: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body, self.middle, self.head = (
                nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(8, 8), nn.Linear(8, 2),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            with torch.autocast("cpu", torch.bfloat16, enabled=around != "the loss"):
                x = self.body(x)
            x = self.middle(x.float().mean((2, 3)))
            with torch.autocast("cpu", torch.bfloat16, enabled=around != "the loss"):
                return self.head(x)

    model = Net()
    for _ in range(5):
        seen.refresh()
        out = model(torch.ones(2, 3, 8, 8))
        with torch.autocast("cpu", torch.bfloat16):
            out.sum().backward()
    half = None if around == "the loss" else "bfloat16"
    assert [seen.values[kind]["autocast"] for kind in ("conv", "linear")] == [half, half]
    assert seen.values["conv"]["after_autocast"] and seen.values["linear"]["after_autocast"]
    assert seen.values["conv"]["shape"] == [2, 3, 8, 8] and seen.values["linear"]["weight_shape"] == [8, 8]
    assert (nn.Conv2d.forward, nn.Linear.forward) == OWN[1:], "asked once"


def test_replicas_in_threads_are_seen_as_well(seen: Seen) -> None:
    seen.refresh()
    thread = threading.Thread(target=lambda: net()(torch.ones(2, 3, 8, 8)).sum().backward())
    thread.start()
    thread.join()
    assert seen.values["conv"]["device"] == "cpu"


def test_switches_are_read_without_a_warning(
    recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    switches = fast_paths(torch)
    assert {"cudnn_benchmark", "cudnn_deterministic", "tf32_matmul", "tf32_cudnn"} <= switches.keys()
    assert not recwarn.list and capfd.readouterr().err == ""


def test_a_weight_that_is_made_anew_each_time_is_not_asked_for(seen: Seen) -> None:
    states = []
    for armed in (False, True):
        torch.manual_seed(3)
        model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)))
        if armed:
            seen.refresh()
        model(torch.ones(2, 3, 8, 8)).sum().backward()
        states.append([value.clone() for value in model.state_dict().values()])
    assert all(torch.equal(alone, watched) for alone, watched in zip(*states, strict=True))
    assert seen.values["conv"]["weight"] == "float32" and seen.values["conv"]["weight_shape"] == [4, 3, 3, 3]


def test_a_weight_that_a_hook_puts_there_is_read(seen: Seen) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = nn.utils.weight_norm(nn.Conv2d(3, 4, 3))
    seen.refresh()
    layer(torch.ones(2, 3, 8, 8)).sum().backward()
    assert seen.values["conv"]["weight_shape"] == [4, 3, 3, 3]


def test_tracers_see_no_wrapper(seen: Seen) -> None:
    class Through(torch.fx.Tracer):
        def is_leaf_module(self, module: Any, name: str) -> bool:
            return False

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    alone = [node.op for node in Through().trace(model).nodes]
    seen.refresh()
    assert [node.op for node in Through().trace(model).nodes] == alone
    assert "conv" not in seen.values


def test_a_size_that_is_a_symbol_is_not_settled(seen: Seen) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    settled = []
    for armed in (False, True):
        symbols = ShapeEnv()
        mode = FakeTensorMode(shape_env=symbols, allow_non_fake_inputs=True)
        given = mode.from_tensor(torch.ones(5, 3, 8, 8), static_shapes=False)
        if armed:
            seen.refresh()
        with mode:
            nn.Conv2d(3, 4, 3)(given)
        settled.append(len(symbols.replacements))
    assert settled[0] == settled[1]


def test_torchscript_compiles_what_is_armed(seen: Seen) -> None:
    seen.refresh()
    model = torch.jit.script(net())
    assert model(torch.ones(2, 3, 8, 8)).shape == (2, 2)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_is_compiled_is_counted_however_it_is_asked_for(fullgraph: bool) -> None:
    dynamo.reset()
    before = compiled_frames()
    torch.compile(lambda x: x + 1, backend="eager", fullgraph=fullgraph)(torch.ones(2))
    assert compiled_frames() > before
    dynamo.reset()


def test_what_has_no_shape_is_passed_over_in_silence(seen: Seen) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ragged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    seen.refresh()
    for given in (ragged, torch.ones(2, 3)):
        nn.Linear(3, 2)(given)
    assert seen.values["linear"]["weight_shape"] == [2, 3]


def test_gradients_by_sample_are_passed_over_in_silence(seen: Seen) -> None:
    layer = nn.Conv2d(3, 4, 3)
    seen.refresh()
    torch.func.vmap(lambda x: torch.func.functional_call(layer, dict(layer.named_parameters()), (x[None],)))(
        torch.ones(5, 3, 8, 8)
    )
    assert "conv" not in seen.values


def test_classes_are_as_they_were_two_steps_later_whatever_was_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rn50_advisor.probes.rank.facts.precision_facts.compiled_frames", lambda: 0)
    recorder = Recorder(torch, str(tmp_path))
    account = recorder.own_account()
    assert account is not None
    account.ring = SimpleNamespace()
    stood_in = []
    for account.step in range(40):
        if account.step >= recorder.schedule.due_at:
            recorder.schedule._due()
        stood_in.append(nn.Linear.forward is not OWN[2])
    recorder.precision.forget()
    recorder.active = False
    assert [step for step, there in enumerate(stood_in) if there] == [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33]
    assert not list(tmp_path.glob("error-*"))


def test_a_teacher_in_eval_mode_is_not_taken_for_the_model(seen: Seen) -> None:
    teacher, student = net().eval(), nn.Sequential(net(), nn.Linear(2, 2))
    seen.refresh()
    x = torch.ones(2, 3, 8, 8)
    (teacher(x) - student(x)).sum().backward()
    assert seen.precision.trained() is student
    assert seen.values["model"]["layers"]["Linear"] == 2
    assert [each.of() for each in seen.precision.called()] == [teacher, student]
    assert all(each.place["file"] == __file__ for each in seen.precision.called())
    del teacher
    assert seen.precision.called()[0].of() is None, "nothing of the job is kept"


def test_a_network_behind_the_model_is_met_too(seen: Seen) -> None:
    model, judge = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(4, 1)
    seen.refresh()
    judge(model(torch.ones(2, 4))).sum().backward()
    assert [each.of() for each in seen.precision.called()] == [model, judge]
    model(torch.ones(2, 4))
    assert nn.Linear.forward is OWN[2], "the first layer again: all of a step was met"
