"""Runs the sibling `inject`. The launcher puts this folder into an unset or empty PYTHONPATH; `inject` recognises that case by it."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inject"))
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
