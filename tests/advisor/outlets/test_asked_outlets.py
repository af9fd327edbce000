"""What cannot work is refused before the job starts, in one line; what is not asked for is not even imported."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.outlets.asked_outlets import asked_outlets, check_outlets
from rn50_advisor.advisor.outlets.outlet import INSTALL
from rn50_advisor.advisor.run.run_options import RunOptions


def test_each_option_asks_for_its_outlet_and_none_for_none(tmp_path: Path) -> None:
    assert asked_outlets(RunOptions()) == [] and not RunOptions().has_outlets
    options = RunOptions(
        metrics_file=str(tmp_path / "x.prom"),
        metrics_listen="0",
        otlp="http://collector:4318",
        notify="https://chat/hook/x",
    )
    assert options.has_outlets
    assert [(outlet.name, outlet.place) for outlet in asked_outlets(options)] == [
        ("metrics.file", str(tmp_path / "x.prom")),
        ("metrics.listen", "127.0.0.1:0"),
        ("metrics.otlp", "http://collector:4318/v1/metrics"),
        ("notify", "https://chat"),
    ]
    check_outlets(options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"metrics_file": "x.txt"}, "does not end with .prom"),
        ({"metrics_file": "nowhere/x.prom"}, "cannot be written: No such file or directory"),
        ({"metrics_file": "folder.prom"}, "is no regular file"),
        ({"metrics_listen": "everywhere"}, "is not an address"),
        ({"metrics_listen": "127.0.0.1:70000"}, "is not an address"),
        ({"metrics_listen": "192.0.2.1:9400"}, "Cannot assign requested address"),  # of no machine (RFC 5737)
        ({"otlp": "collector:4318"}, "no http:// or https:// address"),
        ({"otlp": "http://user:s3cret@host:port"}, "this is no address"),
        ({"notify": "hooks.slack.com/s3cret"}, "no http:// or https:// address"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    options: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.prom").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=says) as raised:
        check_outlets(RunOptions(**options))
    assert "\n" not in raised.value.message and "s3cret" not in raised.value.message + raised.value.hint


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="Address already in use"):
        check_outlets(RunOptions(metrics_listen=str(taken.getsockname()[1])))


@pytest.mark.parametrize(
    ("option", "value", "module"),
    [
        ("metrics_file", "x.prom", "prometheus_client"),
        ("metrics_listen", "0", "prometheus_client"),
        ("otlp", "http://collector", "opentelemetry.exporter.otlp.proto.http"),
        ("otlp", "http://collector", "opentelemetry.sdk"),
    ],
)
def test_where_the_extra_is_missing_one_line_says_what_to_install(
    option: str, value: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as raised:
        check_outlets(RunOptions(**{option: value}))
    assert f"--{option.replace('_', '-')} needs {module}" in raised.value.message and raised.value.hint == INSTALL


def test_checking_loads_neither_arrays_nor_what_sends(tmp_path: Path) -> None:
    code = (
        "import json, sys; from rn50_advisor.advisor.outlets.asked_outlets import check_outlets; "
        "from rn50_advisor.advisor.run.run_options import RunOptions; "
        "check_outlets(RunOptions(metrics_file='x.prom', metrics_listen='0', otlp='http://h', notify='http://h/x')); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    heavy = {"numpy", "prometheus_client", "requests", "opentelemetry.sdk", "rn50_advisor.advisor.verdict.diagnose"}
    assert not heavy & set(json.loads(done.stdout))
