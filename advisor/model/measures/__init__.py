"""The measures that rules may read from an `Analysis`, each declared once with unit and description; `MEASURES` has them by name."""

from __future__ import annotations

from rn50_advisor.advisor.model.measures import (
    comm_measures,
    gpu_measures,
    host_measures,
    input_measures,
    kernel_measures,
    pace_measures,
    step_measures,
    storage_measures,
)
from rn50_advisor.advisor.model.measures.measure import Measure

_DOMAINS = (
    step_measures,
    comm_measures,
    input_measures,
    host_measures,
    storage_measures,
    gpu_measures,
    pace_measures,
    kernel_measures,
)
MEASURES: dict[str, Measure] = {
    value.name: value for domain in _DOMAINS for value in vars(domain).values() if isinstance(value, Measure)
}
