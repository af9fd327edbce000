"""Finds the call at a recorded line, and its arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.edits.names import written_dict
from rn50_advisor.advisor.edits.syntax import Code, last_name

# "itself": the signature is known, so keywords can be added. "kin": a factory or a subclass that may take other arguments; only arguments
# that it already has under the same name can be changed.
Kind = Literal["itself", "kin"]

_SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "DataLoader": (
        *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory"),
        *("drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator"),
    ),
    "DistributedDataParallel": (
        *("module", "device_ids", "output_device", "dim", "broadcast_buffers", "init_sync", "process_group"),
        *("bucket_cap_mb", "find_unused_parameters"),
    ),
    "Embedding": (
        *("num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
    ),
    "EmbeddingBag": (
        *("num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse"),
    ),
}
_SETTINGS, _SETTINGS_PREFIX = "TrainingArguments", "dataloader_"
_SETTINGS_KNOWN = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "drop_last")
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_workers": ("num_workers", "workers", "dataloader_num_workers"),
    "prefetch_factor": ("prefetch_factor", "dataloader_prefetch_factor"),
    "persistent_workers": ("persistent_workers", "dataloader_persistent_workers"),
    "pin_memory": ("pin_memory", "pin_mem", "dataloader_pin_memory"),
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: by keyword, at a position, or (neither) in a dict passed by `**`."""

    value: ast.expr
    keyword: str | None
    position: int | None


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call. `spread`: the entries passed by `**` if they are a dict in the file; None if they are unknown."""

    node: ast.Call
    kind: Kind
    name: str
    spread: Mapping[str, ast.expr] | None
    prefix: str = ""  # of the names of added arguments

    @property
    def stars(self) -> str:
        """The starred arguments as text: `*arguments, **options`."""
        given = [f"*{ast.unparse(a.value)}" for a in self.node.args if isinstance(a, ast.Starred)]
        return ", ".join([*given, *(f"**{ast.unparse(k.value)}" for k in self.node.keywords if k.arg is None)])

    def takes(self, name: str) -> bool:
        """True if the call certainly accepts the argument."""
        return self.kind == "itself" and (not self.prefix or name in _SETTINGS_KNOWN)

    def argument(self, name: str) -> Argument | None:
        names = (name,) if self.kind == "itself" else _ALIASES.get(name, (name,))
        names = (self.prefix + name,) if self.prefix else names
        for keyword in self.node.keywords:
            if keyword.arg in names:
                return Argument(keyword.value, keyword.arg, None)
        for key in names:
            if self.spread and key in self.spread:
                return Argument(self.spread[key], None, None)
        positions = _SIGNATURES.get(self.name, ()) if self.kind == "itself" and not self.prefix else ()
        if name in positions and positions.index(name) < len(self.node.args):
            at = positions.index(name)
            return Argument(self.node.args[at], None, at)
        return None


def find_call(code: Code, line: int, name: str, *, through_package: bool, wanted: Iterable[str]) -> FoundCall | None:
    """Returns the only call at this line that creates a `name`; None if there is none or more than one.

    `through_package`: an installed package is between this line and `name`, so that this line calls something else.
    """
    here = [call for call in code.calls() if call.lineno == line]
    if not here:
        spans = [call for call in code.calls() if call.lineno <= line <= (call.end_lineno or call.lineno)]
        here = [call for call in spans if _is(code, call, name)] or spans[-1:]
    made = [call for call in here if _is(code, call, name)]
    if made:
        kind: Kind = "kin" if through_package else "itself"
        return FoundCall(made[0], kind, name, _spread(code, made[0])) if len(made) == 1 else None
    others = [FoundCall(call, "kin", name, _spread(code, call)) for call in here]
    kin = [found for found in others if any(found.argument(argument) for argument in wanted)]
    return kin[0] if len(kin) == 1 else None


def find_settings(code: Code) -> FoundCall | None:
    """Returns the only call that creates the settings of a Hugging Face trainer, which creates the loaders; None if not exactly one."""
    made = [call for call in code.calls() if (last_name(call.func) or "").endswith(_SETTINGS)]
    if len(made) != 1:
        return None
    return FoundCall(made[0], "itself", _SETTINGS, _spread(code, made[0]), prefix=_SETTINGS_PREFIX)


def options_of_settings(code: Code, wanted: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the options to pass if the command line fills the settings: each setting is an option of its own name."""
    if not any(last_name(call.func) == "HfArgumentParser" for call in code.calls()):
        return ()
    return tuple(f"--{_SETTINGS_PREFIX}{name} {value}" for name, value in wanted.items())


def _spread(code: Code, call: ast.Call) -> dict[str, ast.expr] | None:
    found: dict[str, ast.expr] = {}
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    for keyword in call.keywords:
        if keyword.arg is None:
            entries = written_dict(code, keyword.value)
            if entries is None:
                return None
            found |= entries
    return found


def _is(code: Code, call: ast.Call, name: str) -> bool:
    called = last_name(call.func)
    return called is not None and (called == name or called in _imported_as(code, name))


def _imported_as(code: Code, name: str) -> set[str]:
    imports = [node for node in ast.walk(code.tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname for node in imports for alias in node.names if alias.asname and alias.name == name}
