"""Environment variables of a trial: trackers go offline, and caches go where the job may write."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

# Each is documented by its maker. A job that chooses a mode in its own code overrides them.
_OFFLINE = {
    "WANDB_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",  # of comet_ml.start(), and of frameworks that call it
    "NEPTUNE_MODE": "offline",
    "SWANLAB_MODE": "offline",
    "POLYAXON_OFFLINE": "true",
    "DVC_STUDIO_OFFLINE": "true",
    "DVC_EXP_AUTO_PUSH": "false",
}
_SENDS_NOTHING = {"disabled", "dryrun", "offline", "debug", "local", "read-only"}  # modes that are left as they are
TRACKERS = ("W&B", "MLflow", "ClearML", "Comet", "Neptune", "SwanLab", "Polyaxon", "DVCLive")
_LOCAL_STORES = ("file:", "sqlite:", "/", ".")
# Written to by compilers and trackers; what lies in the old ones is not needed, only computed again.
_MOVED = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "NUMBA_CACHE_DIR": "numba",
    "CUPY_CACHE_DIR": "cupy",
    "MPLCONFIGDIR": "matplotlib",
    "WANDB_DIR": "wandb",
    "WANDB_CACHE_DIR": "wandb-cache",
    "WANDB_DATA_DIR": "wandb-data",
    "NEPTUNE_DATA_DIRECTORY": "neptune",
    "NEPTUNE_LOG_DIRECTORY": "neptune",
    "COMET_OFFLINE_DIRECTORY": "comet",
    "CLEARML_CACHE_DIR": "clearml",
}


def offline(environment: Mapping[str, str], folder: Path, *, read_only: bool) -> dict[str, str | None]:
    """What to set, and with None to unset. `folder`: where a trial may write; `read_only`: it may write nowhere else."""
    variables: dict[str, str | None] = {
        name: value for name, value in _OFFLINE.items() if environment.get(name, "").lower() not in _SENDS_NOTHING
    }
    # MLflow has no offline mode, only other stores. One in files needs no SQLAlchemy, but a variable in newer versions.
    tracking, registry = environment.get("MLFLOW_TRACKING_URI", ""), environment.get("MLFLOW_REGISTRY_URI", "")
    if read_only or not all(uri.startswith(_LOCAL_STORES) for uri in (tracking, registry) if uri):
        store = (folder / "mlruns").as_uri()
        variables |= {"MLFLOW_TRACKING_URI": store, "MLFLOW_ALLOW_FILE_STORE": "true"}
        variables |= {"MLFLOW_REGISTRY_URI": store} if registry else {}
        # a run or an experiment of the other store does not exist in this one
        variables |= {name: None for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID") if name in environment}
    return variables


def moved_caches(environment: Mapping[str, str], folder: Path) -> dict[str, str | None]:
    """Makes folders for temporary files and caches in `folder`, and returns variables that lead there.

    The new cache folder links to all that is in the old one, so that models and data sets that were downloaded are found.
    """
    temporary, cache = folder / "tmp", folder / "cache"
    for made in (temporary, cache, *(folder / name for name in _MOVED.values())):
        made.mkdir(mode=0o700, exist_ok=True)
    home = environment.get("HOME", "")
    old = Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache"))
    with contextlib.suppress(OSError):
        for entry in old.iterdir() if old.is_absolute() else ():
            (cache / entry.name).symlink_to(entry)
    variables = {name: str(folder / place) for name, place in _MOVED.items()}
    return {**variables, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache)}
