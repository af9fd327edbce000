"""Masks credentials in environment variables, command lines and text before they are stored or shown. In doubt it masks.

Every string of the job passes through here before it is written (by the run's writer or the relay of the job's output) and again before
it goes into a bundle. Other nodes get what was written.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from rn50_advisor.advisor.store.secrets.assigned_secrets import Spans
from rn50_advisor.advisor.store.secrets.secret_names import Secrecy, is_plain, secrecy
from rn50_advisor.advisor.store.secrets.secret_spans import COLOUR, merged_spans, secret_spans

MASK = "***"
# Variables that explain how fast a job runs. Other variables are not recorded.
KEPT_PREFIXES = (
    "OMP_",
    "GOMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "NUMEXPR_",
    "MALLOC_",
    "NCCL_",
    "GLOO_",
    "TORCH",
    "PYTORCH",
    "CUDA_",
    "CUDNN_",
    "CUBLAS_",
    "NVIDIA_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "GROUP_",
    "ROLE_",
    "NODE_RANK",
    "MASTER_",
    "SLURM_",
    "OMPI_COMM_WORLD_",
    "UCX_",
    "FI_",
    "TOKENIZERS_",
    "ACCELERATE_",
    "HF_",
)
KEPT_NAMES = frozenset({"LD_PRELOAD", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONMALLOC"})
# Environment variables whose name contains one of these are masked: few useful names do, so a false alarm costs little.
_SECRET_PARTS = (
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "PWD",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "SESSION",
    "PRIVATE",
    "DSN",
    "JWT",
)
_NO_SECRETS = ("TOKENIZERS_",)
_CACHED_CHARACTERS_MAX = 2000
TEXT_CHARACTERS_MAX = 64 << 10  # kept of one string: command lines can have 2 MB, and masking that would take a minute


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables worth keeping, sorted by name, without those that look secret by name or by value."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name in KEPT_NAMES or name.startswith(KEPT_PREFIXES))
        and not _refused(name)
        and redact_text(value) == value
        and redact_text(f"{name}={value}") == f"{name}={value}"
    }


def redact_argv(argv: Iterable[str]) -> list[str]:
    """Masks secret options, assignments and URLs in a command line, also if the value is an argument of its own."""
    return list(_together(tuple(argv)))


@functools.lru_cache(1024)
def _together(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Masks arguments or lines; a secret that begins in one and ends in another is masked in both."""
    spans = [secret_spans(between.join(texts)) for between in (" ", "\n")]
    masked, first = [], 0
    if sum(map(len, texts)) > TEXT_CHARACTERS_MAX:
        return tuple(redact_text(text) for text in texts)
    for text in texts:
        last = first + len(text)
        own = secret_spans(text)
        shared = [
            (max(begin, first) - first, min(end, last) - first)
            for found in spans
            for begin, end in found
            if begin < last and end > first
        ]
        if any(begin == 0 for begin, _ in shared) and not (own and own[0][0] == 0):
            shared = [(0, len(text))]  # the value of the argument in front of it, spaces included
        masked.append(_masked(text, [*own, *shared]))
        first = last + 1
    return tuple(masked)


def redact_text(text: str) -> str:
    """Masks everything that looks like a credential in a text (a shell command, a line of output); cuts off a huge text."""
    if len(text) <= _CACHED_CHARACTERS_MAX:
        return _redacted_short(text)
    if len(text) <= TEXT_CHARACTERS_MAX:
        return _redacted_long(text)
    end = text.rfind(" ", 0, TEXT_CHARACTERS_MAX) + 1 or TEXT_CHARACTERS_MAX
    return f"{_redacted_long(text[:end])}… ({len(text) - end} characters more)"


@functools.lru_cache(8192)
def _redacted_short(text: str) -> str:
    """Cached, since the same frames, commands and arguments recur."""
    return _masked(text, secret_spans(text))


@functools.lru_cache(32)
def _redacted_long(text: str) -> str:
    return _masked(text, secret_spans(text))


def redact_json(value: Any, *, drop_secret_names: bool = False) -> Any:
    """Redacts every string in a JSON value; on demand drops the entries whose key names a secret."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {
            redact_text(key) if isinstance(key, str) else key: _redacted_entry(str(key), item, drop_secret_names)
            for key, item in value.items()
            if not (drop_secret_names and secrecy(str(key)) is not Secrecy.NONE)
        }
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return redact_argv(value)
        return [redact_json(item, drop_secret_names=drop_secret_names) for item in value]
    return value


def as_json(value: Any, *, drop_secret_names: bool = False) -> str:
    """Returns JSON text without secrets; ASCII, so that arguments and names of any bytes are read back unchanged."""
    return json.dumps(
        redact_json(value, drop_secret_names=drop_secret_names), default=lambda other: redact_text(str(other))
    )


def _redacted_entry(name: str, value: Any, drop_secret_names: bool) -> Any:
    found = secrecy(name)
    if found is not Secrecy.NONE and isinstance(value, str):
        return value if is_plain(value, found) else MASK
    if found is Secrecy.CERTAIN and isinstance(value, (list, tuple)):
        return [MASK if isinstance(item, str) else item for item in value]
    return redact_json(value, drop_secret_names=drop_secret_names)


def names_a_secret_word(name: str) -> bool:
    return secrecy(name) is not Secrecy.NONE


def _refused(variable: str) -> bool:
    upper = variable.upper()
    return not upper.startswith(_NO_SECRETS) and any(part in upper for part in _SECRET_PARTS)


def masked_between(text: str, spans: Spans, first: int, last: int) -> str:
    """Returns `text[first:last]` masked, including the rest of a secret that began before `first`."""
    parts, at = [], first
    for begin, end in merged_spans(spans):
        if end > first and begin < last:
            parts += [text[at : max(begin, at)], MASK, *COLOUR.findall(text, max(begin, at), min(end, last))]
            at = min(end, last)
    return "".join([*parts, text[at:last]])


def _masked(text: str, spans: Spans) -> str:
    return masked_between(text, spans, 0, len(text)) if spans else text
