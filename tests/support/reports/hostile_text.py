"""Characters that must not reach a terminal or a report. Not a test."""

from __future__ import annotations

import re

DANGEROUS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
