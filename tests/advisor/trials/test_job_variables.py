"""Trackers go offline, and caches where a trial may write."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.trials.job_variables import moved_caches, offline


def test_trackers_go_offline_unless_they_send_nothing_anyhow() -> None:
    found = offline({"WANDB_MODE": "disabled", "NEPTUNE_MODE": "async"}, Path("/held"), read_only=False)
    assert "WANDB_MODE" not in found
    assert found["NEPTUNE_MODE"] == "offline"
    assert found["SWANLAB_MODE"] == "offline"
    assert found["CLEARML_OFFLINE_MODE"] == "1"


@pytest.mark.parametrize(
    ("given", "read_only", "moved"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"MLFLOW_TRACKING_URI": "https://mlflow.example"}, False, True),
        ({"MLFLOW_TRACKING_URI": "databricks"}, False, True),
        ({"MLFLOW_TRACKING_URI": "postgresql://db/mlflow"}, False, True),
        ({"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}, False, False),
        ({"MLFLOW_TRACKING_URI": "./mlruns"}, False, False),
        ({"MLFLOW_REGISTRY_URI": "https://mlflow.example"}, False, True),
    ],
)
def test_mlflow_writes_into_the_trials_own_store_where_it_would_reach_a_server(
    given: dict[str, str], read_only: bool, moved: bool
) -> None:
    found = offline({**given, "MLFLOW_RUN_ID": "1"}, Path("/held"), read_only=read_only)
    assert (found.get("MLFLOW_TRACKING_URI") == "file:///held/mlruns") is moved
    assert ("MLFLOW_RUN_ID" in found) is moved
    assert found.get("MLFLOW_RUN_ID") is None
    assert ("MLFLOW_REGISTRY_URI" in found) is ("MLFLOW_REGISTRY_URI" in given)


def test_caches_move_and_what_was_downloaded_is_found(tmp_path: Path) -> None:
    home, held = tmp_path / "home", tmp_path / "held"
    (home / ".cache" / "huggingface").mkdir(parents=True)
    (home / ".cache" / "huggingface" / "model").write_text("weights")
    held.mkdir()
    found = moved_caches({"HOME": str(home)}, held)
    assert Path(found["XDG_CACHE_HOME"] or "", "huggingface", "model").read_text() == "weights"
    assert all(Path(value or "").is_relative_to(held) and Path(value or "").is_dir() for value in found.values())
    assert {"TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"} <= found.keys()
    assert moved_caches({"HOME": str(home)}, held) == found, "asked again, it is the same"
