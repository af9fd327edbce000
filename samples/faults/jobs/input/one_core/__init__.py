"""A package that binds the process to a core when it is imported, as OpenMP runtimes do under `OMP_PROC_BIND`."""

import os

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

from one_core.products import product  # noqa: E402

__all__ = ["product"]
