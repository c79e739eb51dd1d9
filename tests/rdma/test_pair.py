# SPDX-License-Identifier: Apache-2.0
"""Between two guests whose cable loses packets: RDMA delivers all the same. Both boot once, and each does its own steps."""
from __future__ import annotations

import re

import pytest
from guest import Ended, Pair, script

pytestmark = pytest.mark.pair

TIMEOUT_S = 300
ADDRESS_A, ADDRESS_B = "10.77.0.1", "10.77.0.2"
LOSS = "2%"
PINGS, PING_BYTES = 10, 30_000
MESSAGES, MESSAGE_BYTES = 5, 500_000
COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters"
A_LISTENS = "until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done"


def cable(address: str) -> dict[str, str]:
    return {"rxe0": f"tests/rdma/rxe_up.sh {address}/24 eth0",
            "loss": f"modprobe sch_netem && tc qdisc add dev eth0 root netem loss {LOSS}"}


def until(name: str) -> str:
    """Waits for a file that guest a makes in its $OUT."""
    return f"until [[ -e /out/a/{name} ]]; do sleep 0.1; done"


TRAFFIC = {"dropped": "tc -s qdisc show dev eth0", "repaired": f"grep . {COUNTERS}/*"}
STEPS_A = {
    **cable(ADDRESS_A),
    "rping": f"timeout 90 rping -s -a {ADDRESS_A} -C {PINGS} -S {PING_BYTES} -V & {A_LISTENS} && touch $OUT/rping && wait $!",
    "pingpong": f"touch $OUT/pingpong && timeout 90 ibv_rc_pingpong -d rxe0 -g 1 -m 4096 -s {MESSAGE_BYTES} -n {MESSAGES} -c",
    **TRAFFIC,
}
STEPS_B = {
    **cable(ADDRESS_B),
    "rping": f"{until('rping')} && timeout 90 rping -c -a {ADDRESS_A} -C {PINGS} -S {PING_BYTES} -V",
    "pingpong": f"{until('pingpong')} && timeout 90 ibv_rc_pingpong -d rxe0 -g 1 -m 4096 -s {MESSAGE_BYTES} -n {MESSAGES} -c {ADDRESS_A}",
    **TRAFFIC,
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Ended]:
    return Pair(tmp_path_factory.mktemp("pair")).run(script(STEPS_A), script(STEPS_B), TIMEOUT_S)


def test_the_guests_do_all_of_it(done: tuple[Ended, Ended]):
    for end in done:
        end.check()


def test_packets_are_lost(done: tuple[Ended, Ended]):
    for end in done:
        assert int(re.search(r"dropped (\d+)", end.passed("dropped")).group(1)) > 0


def test_the_device_sends_them_again(done: tuple[Ended, Ended]):
    for end in done:
        counted = dict(re.findall(r"/(\w+):(\d+)$", end.passed("repaired"), re.MULTILINE))
        assert int(counted["out_of_seq_request"]) + int(counted["completer_retry_err"]) > 0, counted
        assert int(counted["retry_exceeded_err"]) == 0, counted


def test_reads_and_writes_arrive_whole(done: tuple[Ended, Ended]):
    """rping: the server reads what the client names and writes it back, the client compares."""
    for end in done:
        assert "mismatch" not in end.passed("rping")


def test_messages_arrive_whole(done: tuple[Ended, Ended]):
    """ibv_rc_pingpong -c compares what is received."""
    for end in done:
        assert "invalid data" not in end.passed("pingpong")
