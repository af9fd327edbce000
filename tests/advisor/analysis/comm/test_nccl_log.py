"""NCCL's log is understood in the wording of several versions."""

from __future__ import annotations

from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.comm.nccl_log import parse
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.recording import Event

SOCKETS = """\
node-a:919:919 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>
node-a:919:919 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.
node-a:919:1150 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0> [1]eth1:10.0.1.4<0>
node-a:919:1150 [0] NCCL INFO Using network Socket
NCCL version 2.18.1+cuda12.1
node-a:919:1150 [0] NCCL INFO comm 0x55cd rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 7000 commId 0x1 - Init START
node-a:919:1150 [0] NCCL INFO comm 0x55cd rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
node-a:919:1150 [0] NCCL INFO Channel 01/0 : 8[0] -> 15[7] via P2P/IPC/read
node-a:926:1151 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3
node-b:927:1151 [6] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [receive] via NET/Socket/3
node-a:919:1150 [0] NCCL INFO 4 coll channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer
""".splitlines()
INFINIBAND = """\
gpu06:4015539:4015539 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.1.1.6<0>
gpu06:4015539:4015652 [0] NCCL INFO Using network IBext_v8
gpu06:4015539:4015652 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 2 nranks 4 - Init COMPLETE
gpu06:4015539:4015652 [0] NCCL INFO Channel 07/0 : 0[0] -> 2[0] [receive] via NET/IBext_v8/3/GDRDMA
gpu06:4015540:4015653 [1] NCCL INFO Channel 01/0 : 3[1] -> 1[1] [send] via NET/IBext_v8/2/GDRDMA
gpu06:4015540:4015653 [1] NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM
gpu06:4015540:4015653 [1] NCCL INFO AllReduce: 4194304 Bytes -> Algo 1 proto 2 time 301.2
gpu06:4015540:4015653 [1] NCCL INFO AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
NCCL version 2.21.5+cuda12.4
""".splitlines()
OLD = """\
host:20:289 [0] NCCL INFO NET/Socket : Using [0]ib0:192.168.11.1<0>
host:20:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>
NCCL version 2.4.7+cuda10.0
host:20:400 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC
host:20:400 [0] NCCL INFO Ring 01 : 1[1] -> 0[0] via direct shared memory
""".splitlines()


def test_nodes_that_talk_by_tcp() -> None:
    facts = parse(SOCKETS)
    assert facts is not None and facts.over_sockets is True
    assert (facts.version, facts.network, facts.interfaces) == ("2.18.1+cuda12.1", "Socket", ("eth0", "eth1"))
    assert facts.transports == {"P2P": 1, "NET/Socket": 1} and facts.direct is False
    assert (facts.ranks, facts.nodes, facts.channels) == (16, 2, 4)
    assert facts.switches == {"NCCL_IB_DISABLE": "1"}


def test_nodes_that_talk_by_infiniband() -> None:
    facts = parse(INFINIBAND)
    assert facts is not None and facts.over_sockets is False and facts.direct is True
    assert (facts.network, facts.interfaces, facts.ranks) == ("IBext_v8", ("mlx5_0", "mlx5_3"), 4)
    assert facts.transports == {"NET/IB": 1, "P2P": 1}
    assert facts.algorithms == {"AllReduce Ring Simple": 2}


def test_words_of_old_versions() -> None:
    facts = parse(OLD)
    assert facts is not None and facts.version == "2.4.7+cuda10.0"
    assert facts.transports == {"P2P": 2} and facts.over_sockets is False


def test_other_lines_say_nothing() -> None:
    assert parse(["epoch 3 loss 0.2", ""]) is None
    facts = parse(["x NCCL WARN Call to connect failed"])
    assert facts is not None and facts.over_sockets is None and not facts.transports


def test_lines_that_were_kept_reach_the_analysis() -> None:
    event = Event(FIRST_STEP_NS, "nccl_log", None, None, {"lines": SOCKETS})
    analysis = analyse(recording({0: plan(), 1: plan()}, events=(event,)))
    assert analysis.nccl is not None and analysis.nccl.nodes == 2 and analysis.get("nccl.socket") == 1.0
    assert analysis.facts["nccl"]["network"] == "Socket" and "algorithms" not in analysis.facts["nccl"]
    assert analyse(recording({0: plan()})).nccl is None
