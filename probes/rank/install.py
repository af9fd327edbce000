"""Called once, when the job has imported torch."""

import sys

from . import patches
from .recorder import Recorder


def install(folder):
    torch = sys.modules["torch"]
    patches.apply(torch, Recorder(torch, folder))
