"""Network cards, of which the fastest counts."""

from __future__ import annotations

from pathlib import Path

from probe_trees import write_tree
from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.triage.found_checks import Found
from rn50_advisor.advisor.triage.host import network_links
from triage_hosts import by_name, check_of

NET = "Inter-|   Receive\n face |bytes\n"


def test_the_fastest_card_counts_and_virtual_ones_do_not(tmp_path: Path) -> None:
    row = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
    files = {"proc/net/dev": NET + "".join(f"{name}: {row}\n" for name in ("lo", "eth0", "docker0"))}
    cards = {f"sys/class/net/{name}/device/vendor": "0x8086\n" for name in ("eth0", "docker0")}
    speeds = {"sys/class/net/eth0/speed": "10000\n", "sys/class/net/docker0/speed": "100000\n"}
    root = write_tree(tmp_path, {**files, **cards, **speeds})
    found = by_name(network_links.links(root))
    assert set(found) == {"network.eth0_gbit_per_s", "network.link_gbit_per_s"}
    check = check_of(found["network.link_gbit_per_s"])
    assert (check.value, check.state) == (10.0, "low") and isinstance(found["network.link_gbit_per_s"], Found)
    assert found["network.link_gbit_per_s"].remedy == "note"
    write_tree(root, {"sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n"})
    assert check_of(by_name(network_links.links(root))["network.link_gbit_per_s"]).state == "ok"


def test_cards_that_report_no_speed_are_a_gap(tmp_path: Path) -> None:
    write_tree(tmp_path, {"proc/net/dev": NET})
    (gap,) = network_links.links(tmp_path)
    assert isinstance(gap, TriageGap) and gap.name == "network.link_gbit_per_s"


def test_a_containers_end_of_a_link_is_no_card(tmp_path: Path) -> None:
    row = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
    root = write_tree(tmp_path, {"proc/net/dev": f"{NET}eth0: {row}\n", "sys/class/net/eth0/speed": "10000\n"})
    (gap,) = network_links.links(root)
    assert isinstance(gap, TriageGap) and gap.name == "network.link_gbit_per_s"
