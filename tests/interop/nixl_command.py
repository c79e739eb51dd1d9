# SPDX-License-Identifier: Apache-2.0
"""NIXL's plugin OBJ as a command: stores blocks, reads them into other memory, looks some up, and says what was right.

ENDPOINT BUCKET BLOCK_BYTES BLOCKS [NAME=VALUE ...], the rest for the plugin; keys as for AWS's tools. Memory of the
host only, so it runs where there is no GPU.
"""
from __future__ import annotations

import json
import os
import sys
import time

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

WAIT_S = 60


def transfer(agent, kind: str, memory, objects) -> None:
    handle = agent.initialize_xfer(kind, memory.trim(), objects.trim(), "test")
    state, end = agent.transfer(handle), time.monotonic() + WAIT_S
    while state == "PROC" and time.monotonic() < end:
        time.sleep(0.001)
        state = agent.check_xfer_state(handle)
    assert state == "DONE", f"{kind}: {state}"
    agent.release_xfer_handle(handle)


def main(endpoint: str, bucket: str, block_bytes: str, blocks: str, *options: str) -> int:
    size, count = int(block_bytes), int(blocks)
    agent = nixl_agent("test", nixl_agent_config(backends=[]))
    agent.create_backend("OBJ", {
        "access_key": os.environ["AWS_ACCESS_KEY_ID"], "secret_key": os.environ["AWS_SECRET_ACCESS_KEY"], "bucket": bucket,
        "endpoint_override": endpoint, "scheme": endpoint.partition(":")[0], "region": os.environ["AWS_REGION"],
        "use_virtual_addressing": "false", "num_threads": "4", **dict(option.split("=", 1) for option in options)})
    source = numpy.random.default_rng(size + count).integers(0, 256, (count, size), numpy.uint8)
    target = numpy.zeros_like(source)
    found = {}
    objects = agent.register_memory([(0, size, i + 1, f"nixl/{i:04}") for i in range(count)], "OBJ")
    for name, kind, memory in (("stored", "WRITE", source), ("loaded", "READ", target)):
        registered = agent.register_memory([(block.ctypes.data, size, 0, "") for block in memory], "DRAM")
        transfer(agent, kind, registered, objects)
        agent.deregister_memory(registered)
        found[name] = count
    found["equal"] = bool((source == target).all())
    wanted = [(0, size, 0, f"nixl/{i:04}") for i in range(count)] + [(0, size, 0, "nixl/never")]
    found["there"] = [answer is not None for answer in agent.query_memory(wanted, "OBJ", mem_type="OBJ")]
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
