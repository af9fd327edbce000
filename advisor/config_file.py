"""Reads the user's thresholds: `[tool.rn50-advisor]` of a pyproject.toml, or the same table at the top level of another TOML file.

[tool.rn50-advisor]
disable = ["LOP003"]
[tool.rn50-advisor.rules.DAT003]
input_wait = 0.10
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import ConfigError
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.model.wording.near_names import did_you_mean
from rn50_advisor.rules.registry import all_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_config(path: Path | None = None, *, folder: Path | None = None) -> Config:
    """Reads the given file, else pyproject.toml of `folder` (default: the working directory), else the defaults. Raises ConfigError."""
    if path is None:
        path = (folder or Path()) / "pyproject.toml"
        if not path.is_file():
            return Config()
        required = False
    else:
        required = True
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", "name a readable TOML file with --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if not required:
            return Config()  # a broken pyproject.toml of the user's project is not our concern
        raise ConfigError(f"{path}: {error}") from error
    tool = document.get("tool", {})
    table = tool.get("rn50-advisor") if isinstance(tool, dict) else None
    if table is None:
        table = document if required else {}
    return _config(path, _table(path, table, "rn50-advisor"))


def _table(path: Path, value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {name} must be a table, not {value!r}")
    return value


def _config(path: Path, table: Mapping[str, Any]) -> Config:
    unknown = sorted(set(table) - {"disable", "rules"})
    if unknown:
        raise ConfigError(f"{path}: unknown key {unknown[0]!r}", "known are: disable, rules")
    known = {rule.id: rule for rule in all_rules()}
    disabled = table.get("disable", [])
    if not isinstance(disabled, list) or not all(isinstance(name, str) for name in disabled):
        raise ConfigError(f"{path}: disable must be a list of rule ids")
    given = _table(path, table.get("rules", {}), "rules")
    for name in [*disabled, *given]:
        if name not in known:
            hint = did_you_mean(name, known) or "rn50-advisor rules lists them"
            raise ConfigError(f"{path}: there is no rule {name}", hint)
    thresholds: dict[str, dict[str, float]] = {}
    for name, values in given.items():
        for key, value in _table(path, values, f"rules.{name}").items():
            if key not in known[name].thresholds:
                allowed = ", ".join(sorted(known[name].thresholds)) or "none"
                raise ConfigError(f"{path}: {name} has no threshold {key}", f"it has: {allowed}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ConfigError(f"{path}: {name}.{key} must be a number, not {value!r}")
            thresholds.setdefault(name, {})[key] = float(value)
    return Config(thresholds, frozenset(disabled))
