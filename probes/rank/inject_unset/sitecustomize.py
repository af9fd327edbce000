"""In PYTHONPATH if that was unset or empty: runs the sibling `inject`, which recognises that case by this folder."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inject"))
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
