# SPDX-License-Identifier: Apache-2.0
"""Kvern's own client, the store `s3:`, against kvern serve and other people's servers."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
import servers
from servers import BUILD, MIB, Endpoint, KvernServe, kvern

MISSING = 3  # the command's exit status
# What a server does not do, and no client can do for it.
NO_CONDITIONS = {"ceph"}  # Ceph 16 takes If-None-Match on PUT and replaces all the same


class KvernStore:
    """The kvern command on s3://bucket."""

    def __init__(self, endpoint: Endpoint, bucket: str, folder: Path, **parameters: str):
        self.endpoint, self.bucket, self.folder = endpoint, bucket, folder
        given = {"endpoint": endpoint.url, "region": servers.REGION, **({"ca": str(endpoint.ca)} if endpoint.ca else {}), **parameters}
        self.uri = f"s3://{bucket}/kv?" + "&".join(f"{name}={quote(value, safe=':/')}" for name, value in given.items())

    def run(self, command: str, *arguments: str | Path, data: bytes = b"", uri: str = "") -> subprocess.CompletedProcess:
        return subprocess.run([kvern(), command, uri or self.uri, *arguments], input=data, capture_output=True, timeout=120,
                              env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **self.endpoint.env()})

    def ok(self, *arguments, **given) -> bytes:
        done = self.run(*arguments, **given)
        assert done.returncode == 0, f"{arguments}\n{done.stderr.decode()}"
        return done.stdout

    def put(self, key: str, data: bytes, *options: str) -> None:
        self.ok("put", key, *options, data=data)

    def get(self, key: str, *options: str) -> bytes:
        return self.ok("get", key, *options)

    def keys(self, prefix: str = "") -> list[str]:
        return [entry["key"] for entry in json.loads(self.ok("ls", prefix, "--json"))["entries"]]


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory, serve, serve_tls) -> Iterator:
    """others("moto"): that server's endpoint; started when it is first asked for."""
    running: dict[str, Endpoint] = {"kvern": serve.endpoint, "kvern over TLS": serve_tls.endpoint}
    starters = {"seaweedfs": servers.seaweedfs, "moto": servers.moto, "ceph": servers.ceph_rgw}
    with contextlib.ExitStack() as stack:

        def endpoint(name: str) -> Endpoint:
            if name == "ceph" and (why := servers.ceph_missing()):
                pytest.skip(why)
            if name not in running:
                running[name] = stack.enter_context(starters[name](tmp_path_factory.mktemp(name) / "data"))
            return running[name]

        yield endpoint


NAMES = ["kvern", "kvern over TLS", "seaweedfs", "moto", pytest.param("ceph", marks=pytest.mark.long)]


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param


@pytest.fixture
def store(others, name: str, bucket_name: str, tmp_path: Path) -> KvernStore:
    endpoint = others(name)
    endpoint.boto3().create_bucket(Bucket=bucket_name)
    return KvernStore(endpoint, bucket_name, tmp_path, multipart="8MiB")


def test_values_come_back_as_they_were(store: KvernStore, bytes_of):
    """Also those that go in parts of 8 MiB."""
    for size in (0, 1, 70_000, 5 * MIB + 1, 8 * MIB, 37 * MIB + 3):
        data = bytes_of(size)
        store.put("a/value", data)
        assert store.get("a/value") == data, size


def test_parts_of_values_can_be_read(store: KvernStore, bytes_of):
    data = bytes_of(3 * MIB)
    store.put("k", data)
    for offset, length in ((0, 1), (1000, 5000), (MIB - 1, 2), (3 * MIB - 1, 1)):
        assert store.get("k", "--offset", str(offset), "--length", str(length)) == data[offset:offset + length]


def test_what_is_not_there_is_a_miss(store: KvernStore):
    for command in ("get", "stat"):
        assert store.run(command, "never").returncode == MISSING
    store.put("k", b"bytes")
    store.ok("rm", "k")
    assert store.run("get", "k").returncode == MISSING
    assert store.keys() == []


def test_others_see_what_it_stored_and_it_sees_theirs(store: KvernStore, bytes_of):
    s3, data = store.endpoint.boto3(), bytes_of(100_000)
    store.put("k", data)
    assert s3.get_object(Bucket=store.bucket, Key="kv/k")["Body"].read() == data
    s3.put_object(Bucket=store.bucket, Key="kv/theirs", Body=data[::-1])
    assert store.get("theirs") == data[::-1]
    s3.put_object(Bucket=store.bucket, Key="elsewhere", Body=b"")
    assert store.keys() == ["k", "theirs"]


def test_a_list_is_in_order_over_pages(store: KvernStore):
    s3 = store.endpoint.boto3(max_pool_connections=8)
    keys = sorted(f"{'ab'[i % 2]}/{i:04}" for i in range(1100))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=store.bucket, Key=f"kv/{key}", Body=b""), keys))
    assert store.keys() == keys
    assert store.keys("b/") == [key for key in keys if key.startswith("b/")]


def test_keys_may_hold_any_character_that_a_store_takes(store: KvernStore, bytes_of):
    values = {key: bytes_of(100) for key in ("a b", "a+b", "100%", "ü/日本", "a=b&c", "~tilde", "(x)[y]{z}", "q'\"q", "a:b;c,d@e!$")}
    for key, data in values.items():
        store.put(quote(key, safe="/"), data)
    for key, data in values.items():
        assert store.get(quote(key, safe="/")) == data, key
    s3 = store.endpoint.boto3()
    assert sorted(one["Key"] for one in s3.list_objects_v2(Bucket=store.bucket)["Contents"]) == sorted(f"kv/{key}" for key in values)


def test_only_the_first_creator_stores(store: KvernStore, name: str):
    if name in NO_CONDITIONS:
        # It must not pretend: a server that ignores the condition is found out.
        assert store.run("put", "k", "--if-absent", data=b"first").returncode in (0, 1)
        assert store.run("put", "k", "--if-absent", data=b"second").returncode != 0 or store.get("k") == b"second"
        return
    store.put("k", b"first", "--if-absent")
    assert store.run("put", "k", "--if-absent", data=b"second").returncode == 1
    assert store.get("k") == b"first"
    with ThreadPoolExecutor(6) as pool:
        for round_ in range(3):
            said = list(pool.map(lambda i: store.run("put", f"r{round_}", "--if-absent", data=b"by %d" % i).returncode, range(6)))
            # moto looks first and stores then: two may both see nothing.
            assert said.count(0) == 1 or (name == "moto" and said.count(0) >= 1), said
            if said.count(0) == 1:
                assert store.get(f"r{round_}") == b"by %d" % said.index(0)


# What is promised and can't be kept over S3, or not over this server.
OVER_S3 = {"*Aging*": "they look into files", "*EveryVersionHasAnotherEtag": "S3's ETag is that of the bytes"}
NO_SPACE = {"*TellsItsSpace": "S3 has no request for it; kvern serve has"}
NO_BYTES = {"*ListsInByteOrderWithPrefixAfterAndLimit": "its keys are UTF-8 only"}
NO_IF_MATCH = {"*PutWithEtagReplacesOnlyThatVersion": "its PUT has no conditions", "*OnePutOfManyWithTheSameEtagWins": "the same"}
NOT_KEPT = {"kvern over TLS": {}, "ceph": NO_SPACE | NO_BYTES | NO_IF_MATCH, "moto": NO_SPACE | NO_BYTES,
            "seaweedfs": NO_SPACE | NO_BYTES | {"*ListsAsAModelDoes": "it leaves out what sorts between a folder and its name"}}


@pytest.mark.parametrize("name", ["kvern", *(pytest.param(one, marks=pytest.mark.long) for one in NOT_KEPT)], indirect=True)
def test_all_that_a_store_promises(others, name: str, bucket_name: str, tmp_path: Path):
    """The conformance suite of stores, on this server."""
    endpoint = others(name)
    endpoint.boto3().create_bucket(Bucket=bucket_name)
    store = KvernStore(endpoint, bucket_name, tmp_path)
    tests = next(path for path in BUILD.rglob("kvern_store_tests") if path.is_file() and os.access(path, os.X_OK))
    without = ":".join(f"{one}/given" for one in {**OVER_S3, **NOT_KEPT.get(name, {})})
    done = subprocess.run([tests, f"--gtest_filter=*/given-{without}"], capture_output=True, text=True, errors="replace", timeout=540,
                          env={**os.environ, **endpoint.env(), "TMPDIR": str(tmp_path),
                               "KVERN_CONFORMANCE_URI": store.uri.replace("/kv?", "/{}?")})
    print(done.stdout[-6000:])
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "FAILED" in line or "Failure" in line)
    assert "[  PASSED  ]" in done.stdout and " 0 tests" not in done.stdout.split("[  PASSED  ]")[1]


# ---------------------------------------------------------------------------------------------------- servers in trouble


@pytest.fixture
def patient(own_serve, tmp_path: Path) -> tuple[KvernServe, KvernStore]:
    server = own_serve()
    server.boto3().create_bucket(Bucket="bucket")
    return server, KvernStore(server.endpoint, "bucket", tmp_path)


def test_a_server_that_is_gone_is_an_error_in_bounded_time(patient):
    server, store = patient
    server.kill()
    start = time.monotonic()
    done = store.run("get", "k")
    assert done.returncode == 1 and b"127.0.0.1" in done.stderr, done.stderr
    assert time.monotonic() - start < 60


def test_wrong_keys_are_an_error_that_says_so(patient):
    server, store = patient
    for change in ({"access": "nobody"}, {"secret": "wrong"}):
        other = KvernStore(Endpoint(server.endpoint.host, server.endpoint.port, **change), "bucket", store.folder)
        done = other.run("get", "k")
        assert done.returncode == 1 and b"403" in done.stderr, done.stderr
        done = other.run("put", "k", data=b"bytes")  # where the answer has a body, it says more
        assert done.returncode == 1 and (b"InvalidAccessKeyId" in done.stderr or b"SignatureDoesNotMatch" in done.stderr), done.stderr


def test_a_bucket_that_is_not_there_is_an_error(patient):
    server, store = patient
    done = KvernStore(server.endpoint, "no-such-bucket", store.folder).run("put", "k", data=b"bytes")
    assert done.returncode == 1 and b"no-such-bucket" in done.stderr, done.stderr


def test_bytes_that_rot_below_the_server_never_arrive(patient, bytes_of):
    server, store = patient
    data = bytes_of(5 * MIB)
    store.put("k", data)
    path = server.data / "object" / "bucket" / "kv" / "k#"
    with path.open("r+b") as file:
        file.seek(4 * MIB + 77)
        file.write(bytes([file.read(1)[0] ^ 1]))
    with contextlib.suppress(AssertionError):
        assert store.get("k") != data, "they arrived whole"
    done = store.run("get", "k")
    assert done.returncode == 1 and data != done.stdout and b"damaged" in done.stderr, done.stderr
    store.put("k", data, "--if-absent")  # what is damaged is in nobody's way
    assert store.get("k") == data


def test_a_certificate_of_nobody_is_refused(serve_tls, tmp_path: Path, bucket_name: str):
    serve_tls.boto3().create_bucket(Bucket=bucket_name)
    endpoint = Endpoint(serve_tls.endpoint.host, serve_tls.endpoint.port, tls=True)
    done = KvernStore(endpoint, bucket_name, tmp_path).run("get", "k")
    assert done.returncode == 1 and b"certificate" in done.stderr, done.stderr
