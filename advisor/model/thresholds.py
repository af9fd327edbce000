"""User settings for the rules: their thresholds, and the rules to leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Config:
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by rule id
    disabled: frozenset[str] = frozenset()
