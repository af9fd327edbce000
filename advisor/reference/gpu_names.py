"""Maps a driver's or torch's device name to the GPU names of the tables: `A100-SXM`, `RTX4090`.

Form factors are distinguished, since they differ in speed; memory sizes are not. An unknown name, a laptop GPU or a
MIG instance gives None, never the closest match: a wrong reference is worse than none.
"""

from __future__ import annotations

import re

# The first pattern that matches names the device.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("B200", r"B200"),
    ("H200-NVL", r"H200 NVL"),
    ("H200", r"H200"),
    ("H100-NVL", r"H100 NVL"),
    ("H100-PCIe", r"H100 (\S+ )?PCIE"),
    ("H100-SXM", r"H100 (\S+ )?(HBM3|SXM\d?)|H100-SXM\d?\S*"),
    ("A100-PCIe", r"A100(-PCIE-\d+GB| \d+GB PCIE)"),
    ("A100-SXM", r"A100-SXM\d?-\d+GB"),
    ("V100", r"V100(S)?-(SXM\d|PCIE|DGXS|FHHL)\S*"),
    ("A10G", r"A10G"),
    ("A10", r"A10"),
    ("A30", r"A30"),
    ("A40", r"A40"),
    ("L40S", r"L40S"),
    ("L4", r"L4"),
    ("T4", r"T4"),
    ("A6000", r"RTX A6000"),
    ("RTX6000-Ada", r"RTX 6000 ADA GENERATION"),
    ("RTX2080Ti", r"GEFORCE RTX 2080 TI"),
    ("RTX3090", r"GEFORCE RTX 3090"),
    ("RTX4090", r"GEFORCE RTX 4090"),
)
_KNOWN = tuple((key, re.compile(rf"(NVIDIA )?(TESLA )?({pattern})")) for key, pattern in _PATTERNS)


def gpu_model(name: str) -> str | None:
    """Returns the table's name: `A100-SXM` for `NVIDIA A100-SXM4-40GB`. None unless the whole name matches."""
    plain = " ".join(name.upper().split())
    return next((key for key, pattern in _KNOWN if pattern.fullmatch(plain)), None)


def known_models() -> tuple[str, ...]:
    return tuple(key for key, _ in _PATTERNS)
