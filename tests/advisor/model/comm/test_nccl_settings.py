"""The contents of NCCL's own log, and whether ranks exchange over sockets."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts, nccl_words


@pytest.mark.parametrize(
    ("transports", "over"),
    [
        ({}, None),
        ({"P2P": 8, "SHM": 2}, False),
        ({"NET/IB": 4, "P2P": 8}, False),
        ({"NET/Socket": 4}, True),
        ({"NET/IB": 4, "NET/Socket": 1}, True),
    ],
)
def test_ranks_exchange_over_sockets_where_a_connection_says_so(transports: dict[str, int], over: bool | None) -> None:
    assert NcclFacts(transports=transports).over_sockets is over


def test_only_logged_settings_become_facts() -> None:
    assert nccl_words(None) == {} and nccl_words(NcclFacts()) == {"nccl": {}}
    switches = {"NCCL_P2P_DISABLE": "1"}
    logged = NcclFacts(version="2.21.5", transports={"P2P": 8}, ranks=8, switches=switches)
    assert nccl_words(logged) == {
        "nccl": {"version": "2.21.5", "transports": {"P2P": 8}, "ranks": 8, "switches": switches}
    }


@pytest.mark.parametrize(("direct", "fact"), [(True, {"direct": True}), (False, {"direct": False}), (None, {})])
def test_direct_access_is_a_fact_if_known(direct: bool | None, fact: dict[str, bool]) -> None:
    assert nccl_words(NcclFacts(direct=direct)) == {"nccl": fact}
