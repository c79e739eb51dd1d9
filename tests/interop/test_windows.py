# SPDX-License-Identifier: Apache-2.0
"""Transfers straight into a client's memory: `kvern serve --rdma local,ofi` with Kvern's own client, and requests that lie.

What goes over the network here goes over TCP; verbs are tried in tests/rdma.
"""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import servers
from botocore.exceptions import ClientError
from servers import BUILD, KvernServe
from test_kvern_client import OVER_S3

BUCKET = "windows"
WINDOW = "a" * 32


OFI = ["--rdma", "local,ofi", "--fabric-address", "127.0.0.1", "--fabric-providers", "tcp;ofi_rxm"]


@pytest.fixture(params=["file", "mem"])
def served(request, own_serve, tmp_path: Path) -> KvernServe:
    store = "mem:?size=1GiB" if request.param == "mem" else f"file://{tmp_path}"
    server = own_serve(*OFI, store=store)
    server.boto3().create_bucket(Bucket=BUCKET)
    return server


def metric(server: KvernServe, name: str) -> float:
    lines = server.endpoint.get("/-/metrics")[1].decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"kvern_server_{name} ")))


@pytest.mark.parametrize("provider", ["local", "ofi"])
def test_everything_that_a_store_must_do_it_does_with_windows(served: KvernServe, provider: str):
    uri = f"s3://{BUCKET}/{{}}?endpoint={served.endpoint.url}&region={servers.REGION}&rdma={provider}"
    skipped = [*OVER_S3, *(["*TellsItsSpace"] if served.store.startswith("mem:") else [])]  # it is nobody's disk
    without = ":".join(f"{one}/given" for one in skipped)
    tests = next(path for path in BUILD.rglob("kvern_store_tests") if path.is_file() and os.access(path, os.X_OK))
    done = subprocess.run([tests, f"--gtest_filter=*/given-{without}"], capture_output=True, text=True, errors="replace", timeout=540,
                          env={**os.environ, **served.endpoint.env(), "KVERN_CONFORMANCE_URI": uri, "KVERN_CONFORMANCE_WINDOWS": "1"})
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "FAILED" in line or "Failure" in line)
    assert "[  PASSED  ]" in done.stdout and " 0 tests" not in done.stdout.split("[  PASSED  ]")[1]
    assert metric(served, "window_sent_bytes_total") > 10e6 and metric(served, "window_received_bytes_total") > 10e6
    assert metric(served, "windows") == 0, "all clients are gone"


def put_with(served: KvernServe, headers: dict[str, str], body: bytes = b""):
    """A PUT with headers of another's dialect."""
    s3 = served.boto3()

    def add(params, **_):
        params["headers"].update(headers)

    s3.meta.events.register("before-call.s3.PutObject", add)
    return s3.put_object(Bucket=BUCKET, Key="k", Body=body)


@pytest.mark.parametrize("headers", [
    {"x-rdma-info": "00007f00c0de0000:00400000:1a2b3c4d:0000:0001f7:1:00000000000000000000ffffc0000211"},
    {"x-amz-meta-rdma-token": "1:2:3:4:5:6:7"}, {"x-scal-rdma": "x"},
    {"x-amz-rdma-token": "no token"}, {"x-amz-rdma-token": f"0:0:local1:{WINDOW}"},
])
def test_an_empty_put_whose_body_is_elsewhere_is_refused_and_stores_nothing(served: KvernServe, headers: dict[str, str]):
    with pytest.raises(ClientError) as found:
        put_with(served, headers)
    assert found.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    with pytest.raises(ClientError):
        served.boto3().head_object(Bucket=BUCKET, Key="k")


@pytest.mark.parametrize("token", [
    f"0:1000:local1:{WINDOW}", "0:1000:local2:x", "1:2:ofi1:tcp;ofi_rxm:02001f90:2a",
    "00007f00c0de0000:00400000:1a2b3c4d:0000:0001f7:1:00000000000000000000ffffc0000211",
])
def test_memory_that_can_not_be_reached_is_declined(served: KvernServe, token: str):
    with pytest.raises(ClientError) as found:
        put_with(served, {"x-amz-rdma-token": token})
    answer = found.value.response["ResponseMetadata"]
    assert answer["HTTPStatusCode"] == 501 and answer["HTTPHeaders"]["x-amz-rdma-reply"] == "501"
    put_with(served, {"x-amz-rdma-token": token}, b"the body came along")
    s3 = served.boto3()
    s3.meta.events.register("before-call.s3.GetObject", lambda params, **_: params["headers"].update({"x-amz-rdma-token": token}))
    got = s3.get_object(Bucket=BUCKET, Key="k")
    assert got["ResponseMetadata"]["HTTPHeaders"]["x-amz-rdma-reply"] == "501"
    assert got["Body"].read() == b"the body came along"


def test_little_memory_makes_transfers_wait_and_none_fail(own_serve, tmp_path: Path):
    """Each takes several pieces of it, more than there are for all of them at a time."""
    server = own_serve(*OFI, "--memory", "96MiB", store=f"file://{tmp_path}")
    server.boto3().create_bucket(Bucket=BUCKET)
    uri = f"s3://{BUCKET}/x?endpoint={server.endpoint.url}&region={servers.REGION}&rdma=ofi"
    kvern = next(path for path in BUILD.rglob("kvern") if path.is_file() and os.access(path, os.X_OK))
    done = subprocess.run([kvern, "bench", "store", uri, "--size", "16MiB", "--bytes", "256MiB", "--depth", "12", "--ops", "put,get",
                           "--rounds", "1", "--json"], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **server.endpoint.env(), "KVERN_FABRIC_PROVIDER": "tcp;ofi_rxm"})
    assert done.returncode == 0, done.stderr
    assert metric(server, "window_sent_bytes_total") >= 128 << 20
    text = server.endpoint.get("/-/metrics")[1].decode()
    assert not [line for line in text.splitlines() if 'status="5xx"' in line and not line.endswith(" 0")]


def test_windows_are_offered_only_by_a_server_that_has_them(serve, served: KvernServe):
    assert served.boto3().list_buckets()["ResponseMetadata"]["HTTPHeaders"]["x-kvern-extensions"] == "exists, fabric"
    assert serve.boto3().list_buckets()["ResponseMetadata"]["HTTPHeaders"]["x-kvern-extensions"] == "exists"
