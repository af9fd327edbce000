"""What must never be stored: credentials in environment variables, command lines and text. In doubt it is masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "***"

# Variables that explain how fast a job runs. Everything else stays with the job.
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
# Of environment variables, any name that contains one of these is refused: few useful names do, so a false alarm costs little.
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
# Of options and assignments, a whole word must match: `--tokenizer`, `--max-tokens` and `--keypoints` are no secrets.
_SECRET_WORDS = frozenset(
    (
        *("key", "keys", "apikey", "accesskey", "token", "secret", "secrets", "private", "dsn", "jwt"),
        *("password", "passwords", "passwd", "passphrase", "pass", "pwd", "credential", "credentials"),
        *("auth", "authorization", "bearer", "cookie", "cookies", "session"),
    )
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_USER_AND_PASSWORD = re.compile(r"(?<![\w.%+-])[\w.%+-]*:(?!//)[^\s/@:'\"]+@(?=[\w\[])")
_TOKEN_IN_URL = re.compile(r"://[^\s/@:'\"]{16,}@")
_AUTHORIZATION = re.compile(
    r"(?i)\b(authorization\s*[:=]\s*['\"]?|bearer\s+)(?:(?:basic|bearer|token)\s+)?[^\s'\",]{6,}"
)
_KNOWN_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s;&,'\"}]+)"
_ASSIGNMENT = re.compile(rf"(?P<name>(?<![\w.-])-?-?[A-Za-z_][\w.-]*)(?P<sign>['\"]?\s*[=:]\s*)(?P<value>{_VALUE})")
_OPTION = re.compile(rf"(?P<name>(?<!\S)--?[A-Za-z][\w.-]*)(?P<sign>\s+)(?P<value>(?!--){_VALUE})")


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables worth keeping, in order of their names; one that looks secret by name or by value is left out."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name in KEPT_NAMES or name.startswith(KEPT_PREFIXES))
        and not _names_a_secret(name)
        and redact_text(value) == value
    }


def redact_argv(argv: Iterable[str]) -> list[str]:
    """The command line with the values of secret options, assignments and URLs masked."""
    redacted: list[str] = []
    value_is_secret = False
    for argument in argv:
        if value_is_secret and not argument.startswith("--"):
            redacted.append(MASK)
            value_is_secret = False
            continue
        redacted.append(redact_text(argument))
        value_is_secret = (
            argument.startswith("-") and "=" not in argument and " " not in argument and names_a_secret_word(argument)
        )
    return redacted


def redact_text(text: str) -> str:
    """Any text (a shell command, a line of output) with everything that has the shape of a credential masked."""
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _AUTHORIZATION.sub(rf"\g<1>{MASK}", text)
    text = _USER_AND_PASSWORD.sub(f"{MASK}@", text)
    text = _TOKEN_IN_URL.sub(f"://{MASK}@", text)
    text = _KNOWN_SHAPES.sub(MASK, text)
    text = _ASSIGNMENT.sub(_mask_value, text)
    return _OPTION.sub(_mask_value, text)


def redact_json(value: Any, *, drop_secret_names: bool = False) -> Any:
    """A JSON value with every string in it redacted; on demand without the entries whose key names a secret."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {
            key: redact_json(item, drop_secret_names=drop_secret_names)
            for key, item in value.items()
            if not (drop_secret_names and names_a_secret_word(str(key)))
        }
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return redact_argv(value)
        return [redact_json(item, drop_secret_names=drop_secret_names) for item in value]
    return value


def _names_a_secret(variable: str) -> bool:
    upper = variable.upper()
    return not upper.startswith(_NO_SECRETS) and any(part in upper for part in _SECRET_PARTS)


def names_a_secret_word(name: str) -> bool:
    return any(word.lower() in _SECRET_WORDS for word in _WORD.findall(name))


def _mask_value(match: re.Match[str]) -> str:
    if not names_a_secret_word(match["name"]) or match["value"].startswith(MASK):
        return match[0]
    return f"{match['name']}{match['sign']}{MASK}"
