"""Maps a driver's or torch's device name to the GPU names of the tables: `A100-SXM`, `RTX4090`.

Form factors are distinguished, since they differ in speed; memory sizes are not. An unknown name, a laptop GPU or a
MIG instance gives None, never the closest match: a wrong reference is worse than none.
"""

from __future__ import annotations

import re

# The first pattern that matches names the device.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("B300", r"B300( SXM\d)?( AC)?"),
    ("B200", r"B200"),
    ("GH200", r"GH200( \d+GB)?"),
    ("H200-NVL", r"H200 NVL"),
    ("H200", r"H200"),
    ("H100-NVL", r"H100 NVL"),
    ("H100-PCIe", r"H100 (\S+ )?PCIE"),
    ("H100-SXM", r"H100 (\S+ )?(HBM3|SXM\d?)|H100-SXM\d?\S*"),
    ("H800-PCIe", r"H800 PCIE"),
    ("H800-SXM", r"H800"),
    ("H20", r"H20"),
    ("A100-PCIe", r"A100(-PCIE-\d+GB| \d+GB PCIE)"),
    ("A100-SXM", r"A100-SXM\d?-\d+GB"),
    ("A800-PCIe", r"A800(-PCIE-\d+GB| \d+GB (PCIE|ACTIVE))"),
    ("A800-SXM", r"A800-SXM\d?-\d+GB"),
    ("V100-SXM", r"V100-(SXM\d|DGXS)-\d+GB\S*"),
    ("V100-PCIe", r"V100-PCIE-\d+GB"),
    ("P100-SXM", r"P100-SXM2-\d+GB"),
    ("P100-PCIe", r"P100-PCIE-\d+GB"),
    ("A10G", r"A10G"),
    ("A10", r"A10"),
    ("A30", r"A30"),
    ("A40", r"A40"),
    ("L40S", r"L40S"),
    ("L40", r"L40"),
    ("L20", r"L20"),
    ("L4", r"L4"),
    ("T4", r"T4"),
    ("A5000", r"RTX A5000"),
    ("A6000", r"RTX A6000"),
    ("RTX6000-Ada", r"RTX 6000 ADA GENERATION"),
    ("RTX8000", r"(QUADRO )?RTX 8000"),
    ("RTX-PRO-6000", r"RTX PRO 6000 BLACKWELL WORKSTATION EDITION"),
    ("RTX2080Ti", r"GEFORCE RTX 2080 TI"),
    ("RTX3090", r"GEFORCE RTX 3090"),
    ("RTX4090", r"GEFORCE RTX 4090"),
    ("RTX4090D", r"GEFORCE RTX 4090 ?D"),
    ("RTX5090", r"GEFORCE RTX 5090"),
)
_KNOWN = tuple((key, re.compile(rf"(NVIDIA )?(TESLA )?({pattern})")) for key, pattern in _PATTERNS)


def gpu_model(name: str) -> str | None:
    """Returns the table's name: `A100-SXM` for `NVIDIA A100-SXM4-40GB`. None unless the whole name matches."""
    plain = " ".join(name.upper().split())
    return next((key for key, pattern in _KNOWN if pattern.fullmatch(plain)), None)


def known_models() -> tuple[str, ...]:
    return tuple(key for key, _ in _PATTERNS)
