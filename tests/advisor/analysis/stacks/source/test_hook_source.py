"""From a hook to the call that registers it."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.stacks.source.hook_source import registering_call
from rn50_advisor.advisor.model.recording import Source

FILE, HOOKS = "/job/train.py", "/job/hooks.py"
TRAIN = """\
import hooks
for x in loader:
    for module in model.modules():
        module.register_forward_hook(hooks.watch)
        module.register_forward_hook(
            lambda *_: print(1)
        )
        module.register_forward_hook(watcher.hook_of(module))
        model.head.register_forward_hook(hook=self.keep)
    weight.register_hook(print_norm)
    model.register_backward_hook(whatever)
"""


def found(kind: str, function: str, file: str = HOOKS, line: int = 1, text: str = TRAIN) -> int | None:
    sources = (Source(HOOKS, "", "def watch(*_):\n    pass\n"), Source(FILE, "", text))
    place = registering_call(sources, kind, function, {"file": file, "line": line})
    assert place is None or place["file"] == FILE
    return None if place is None else place["line"]


@pytest.mark.parametrize(
    ("kind", "function", "file", "line", "expected"),
    [
        pytest.param("register_forward_hook", "watch", HOOKS, 1, 4, id="by its name"),
        pytest.param("register_forward_hook", "<lambda>", FILE, 6, 5, id="a lambda in the call"),
        pytest.param("register_forward_hook", "main.<locals>.<lambda>", FILE, 6, 5, id="a lambda in a function"),
        pytest.param(
            "register_forward_hook", "W.hook_of.<locals>.hook", HOOKS, 1, 8, id="by the function that makes it"
        ),
        pytest.param("register_forward_hook", "Trainer.keep", HOOKS, 1, 9, id="a method"),
        pytest.param("register_hook", "something", HOOKS, 1, 10, id="the only call of its kind"),
        pytest.param("register_full_backward_hook", "whatever", HOOKS, 1, 11, id="by the older method"),
        pytest.param("register_forward_hook", "unknown", HOOKS, 1, None, id="one of several"),
        pytest.param("register_step_post_hook", "watch", HOOKS, 1, None, id="no such call"),
    ],
)
def test_the_call(kind: str, function: str, file: str, line: int, expected: int | None) -> None:
    assert found(kind, function, file, line) == expected


def test_a_source_that_cannot_be_read_or_has_changed_has_no_calls() -> None:
    assert found("register_hook", "print_norm", text="for x in\n") is None
    edited = (Source(FILE, "", TRAIN, edited=True),)
    assert registering_call(edited, "register_hook", "print_norm", {"file": FILE, "line": 1}) is None
