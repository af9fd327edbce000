"""In PYTHONPATH where that was unset or empty: does what `inject` beside it does, which knows by this folder what it stands for."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inject"))
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
