# SPDX-License-Identifier: Apache-2.0
"""In one guest with soft-RoCE: transfers by libfabric over verbs, alone and between `kvern serve` and its own client.

The guest boots once and does all steps; each test looks at one of them. It is emulated: this says what is right, not what is fast.
"""
from __future__ import annotations

import json
import re

import pytest
from guest import Ended, Guest, script
from test_rdma import program

TIMEOUT_S = 400
ADDRESS, PORT = "10.77.0.1", 9000
VERBS = "verbs;ofi_rxm"
KEYS = "KVERN_ACCESS_KEY=guest KVERN_SECRET_KEY=guest-secret AWS_ACCESS_KEY_ID=guest AWS_SECRET_ACCESS_KEY=guest-secret"
URI = f"s3://verbs/{{}}?endpoint=http://{ADDRESS}:{PORT}&rdma=ofi"
FABRIC = (
    "WriteAndReadTheMemoryThatATokenNames", "AWrongKeyOrRangeIsRefusedAndHurtsNobodyElse",
    "WhatIsUnderWayBesideARefusalIsDoneAgain", "AnOwnerThatDiesEndsItsTransfersSoon",
)
STORE = ("ReturnsWhatWasPutForAnySize", "ReturnsAnyRange", "ReadersSeeWholeValuesWhileWritersReplaceThem")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    kvern, tests = program("kvern"), program("kvern_store_tests")
    serve = (f"{KEYS} {kvern} serve --store 'mem:?size=256MiB' --memory 128MiB --listen {ADDRESS}:{PORT} --rdma ofi "
             f"--fabric-providers '{VERBS}' --fabric-address {ADDRESS} >/out/serve.log 2>&1 & echo $! >/run/serve.pid; "
             f"timeout 30 bash -c 'until curl -sf http://{ADDRESS}:{PORT}/-/healthy; do sleep 0.1; done'")
    steps = {
        "rxe0": f"tests/rdma/rxe_up.sh {ADDRESS}/24",
        "probe": f"{kvern} probe --address {ADDRESS} --json",
        # Each in a process of its own: a second verbs endpoint in one has been seen to crash in libfabric 1.17.
        "fabric": (f"export KVERN_TEST_OFI_PROVIDER='{VERBS}' KVERN_TEST_OFI_ADDRESS={ADDRESS}; for name in {' '.join(FABRIC)}; do "
                   f"timeout 60 {program('kvern_fabric_tests')} --gtest_filter=OfiTransfers.$name || echo failed; done"),
        "serve": serve,
        "bucket": f"{KEYS} {kvern} bench store '{URI.format('bench')}' --size 64KiB --bytes 1MiB --rounds 1 --seconds 2 --json",
        "store": (f"KVERN_CONFORMANCE_WINDOWS=1 KVERN_CONFORMANCE_URI='{URI}' {KEYS} timeout 120 {tests} --gtest_filter="
                  + ":".join(f"*.{name}/given" for name in STORE)),
        "asked": f"{KEYS} {kvern} probe '{URI.format('probe')}' --json",
        "metrics": f"curl -sf http://{ADDRESS}:{PORT}/-/metrics",
        "stop": "kill $(cat /run/serve.pid) && timeout 30 tail --pid=$(cat /run/serve.pid) -f /dev/null; cat /out/serve.log",
    }
    return Guest(tmp_path_factory.mktemp("ofi")).run(script(steps), TIMEOUT_S)


def test_the_guest_does_all_of_it(done: Ended):
    done.check()


def test_probe_finds_verbs_at_the_address(done: Ended):
    found = {one["name"]: one for one in json.loads(done.passed("probe"))["providers"]}
    assert found[VERBS]["usable"], found
    assert ADDRESS in found[VERBS]["reason"]


@pytest.mark.parametrize("name", FABRIC)
def test_transfers_over_verbs(done: Ended, name: str):
    output = done.step("fabric").output
    assert re.search(rf"^\[ +OK +\] OfiTransfers\.{name} ", output, re.MULTILINE), output[-4000:]


@pytest.mark.parametrize("name", STORE)
def test_the_store_over_verbs(done: Ended, name: str):
    done.passed("serve")
    done.passed("bucket")
    output = done.step("store").output
    assert re.search(rf"^\[ +OK +\] .*{name}/given", output, re.MULTILINE), output[-4000:]


def test_bytes_went_straight_into_memory(done: Ended):
    assert f"straight into memory ({VERBS})" in json.loads(done.passed("asked"))["store"]
    counted = dict(line.split() for line in done.passed("metrics").splitlines() if line.startswith("kvern_server_window_"))
    assert float(counted["kvern_server_window_sent_bytes_total"]) > 1e6
    assert float(counted["kvern_server_window_received_bytes_total"]) > 1e6
    assert float(counted["kvern_server_window_registrations_total"]) == 1, "a transfer registered memory"


def test_the_server_stops_cleanly(done: Ended):
    assert "kvern serve: stopping" in done.passed("stop")
