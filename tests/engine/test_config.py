# SPDX-License-Identifier: Apache-2.0
"""A wrong configuration stops the start with one sentence: which option, which value, what to do instead."""
from __future__ import annotations

import pytest
from conftest import kvern_only
from serving import kvern_transfer

# options of the connector (store: a URI with {store} for a good folder), then what the sentence must name
BAD = {
    "a typo in the scheme": ({"store": "flie://{store}"}, ["store", "flie", "file"]),
    "a typo in a parameter": ({"store": "file://{store}?dept=4"}, ["dept", "depth"]),
    "a typo in an option": ({"stagging_mib": 64}, ["stagging_mib", "staging_mib"]),
    "a folder that can't be made": ({"store": "file:///proc/kvern"}, ["store", "/proc/kvern"]),
    "chunks that are no whole blocks": ({"chunk_tokens": 300}, ["chunk_tokens", "300", "128"]),
    "too little staging": ({"staging_mib": 1}, ["staging_mib", "1"]),
    "a value of the wrong kind": ({"min_tokens": "many"}, ["min_tokens", "many"]),
    "an unknown mode": ({"mode": "readonly"}, ["mode", "readonly", "read_only"]),
}


@kvern_only
@pytest.mark.parametrize("name", BAD)
def test_a_bad_option_stops_the_start(run, model, store, name):
    options, named = BAD[name]
    options = {"chunk_tokens": 256, "staging_mib": 64, **options}
    uri = options.pop("store", "file://{store}").format(store=store)
    judge(run("cases:start_error", model=model, kv_transfer=kvern_transfer(uri, **options)), named)


@kvern_only
def test_the_policy_that_fails_requests_stops_the_start(run, model, store):
    """vLLM's default: a load that fails ends the request. Kvern wants to be told that this is meant."""
    config = kvern_transfer(store, chunk_tokens=256, staging_mib=64) | {"kv_load_failure_policy": "fail"}
    judge(run("cases:start_error", model=model, kv_transfer=config),
          ["kv_load_failure_policy", "fail", "recompute", "allow_fail_policy"])


def judge(message: str, named: list[str]) -> None:
    assert message, "the engine started"
    assert "\n" not in message.strip()
    for word in named:
        assert word in message, message
