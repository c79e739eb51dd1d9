# SPDX-License-Identifier: Apache-2.0
"""Kvern's client with storage that takes cuObject's descriptors: `rdma=cuobject` in both dialects, against a server of
the tests' own that keeps its word, does not, or has never heard of it.

Not run on hardware: instead of NVIDIA's library there is one that stands in for it (tests/fabric/fake_cuobjclient.cc), and
bytes move between two processes of this host. What is shown is what the client sends, believes and does.
"""
from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import servers
from dell_server import DIALECTS, DellServer, Tokens
from servers import BUILD, MIB

BUCKET = "bucket"
SIZES = (1, 4096, 70_000, 3 * MIB + 5)
UNTOUCHED = 0xA5


def built(name: str) -> Path:
    found = [path for path in BUILD.rglob(name) if path.is_file()]
    assert found, f"{BUILD} has no {name}: ./run build"
    return found[0]


class RegionClient:
    """A kvern_region_client: values go to the store from memory that it was given, and come back there."""

    def __init__(self, endpoint: str, folder: Path, parameters: str, environment: dict[str, str]):
        self.folder = folder
        uri = f"s3://{BUCKET}/kv?endpoint={endpoint}&region={servers.REGION}&connect_timeout=5s&timeout=10s&{parameters}"
        env = {**os.environ, **servers.Endpoint("127.0.0.1", 0).env(), "KVERN_CUOBJECT_LIBRARY": str(built("libkvern_fake_cuobjclient.so")), **environment}
        self.errors = (folder / "client.log").open("w+b")
        self.popen = subprocess.Popen([built("kvern_region_client"), uri, str(64 * MIB)], text=True, env=env, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self.errors)

    def ask(self, line: str):
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()
        answer = self.popen.stdout.readline()
        assert answer, f"the client ended with {self.popen.wait()}\n{self.said()}"
        return json.loads(answer)

    def put(self, key: str, data: bytes, condition: str = "") -> dict:
        (self.folder / "put").write_bytes(data)
        return self.ask(f"put {key} {self.folder / 'put'} {condition}")

    def get(self, key: str, size: int, part: str = "") -> tuple[dict, bytes]:
        outcome = self.ask(f"get {key} {self.folder / 'got'} {size} {part}")
        return outcome, (self.folder / "got").read_bytes()

    def is_straight(self) -> bool:
        return "bytes straight into memory (cuobject)" in self.ask("describe")

    def said(self) -> str:
        return (self.folder / "client.log").read_text(errors="replace")

    def end(self) -> int:
        self.popen.stdin.close()
        status = self.popen.wait(30)
        self.popen.stdout.close()
        self.errors.close()
        return status


@pytest.fixture(params=list(DIALECTS))
def dialect(request) -> str:
    return request.param


@pytest.fixture
def server(dialect: str) -> Iterator[DellServer]:
    with DellServer(dialect) as one:
        yield one


@pytest.fixture
def client_of(tmp_path: Path) -> Iterator[Callable[..., RegionClient]]:
    """client_of(server, "dialect=dell"): ended after the test, and well."""
    clients: list[RegionClient] = []

    def start(server: DellServer | str, parameters: str, environment: dict[str, str] | None = None, rdma: str = "cuobject") -> RegionClient:
        folder = tmp_path / f"client-{len(clients)}"
        folder.mkdir()
        endpoint = server if isinstance(server, str) else f"http://127.0.0.1:{server.port}"
        clients.append(RegionClient(endpoint, folder, f"rdma={rdma}&{parameters}", environment or {}))
        return clients[-1]

    yield start
    for client in clients:
        if client.popen.poll() is None:
            assert client.end() == 0, client.said()


@pytest.fixture
def client(server: DellServer, client_of, dialect: str) -> RegionClient:
    return client_of(server, f"dialect={dialect}")


def stored(server: DellServer, client: RegionClient, bytes_of, size: int = 70_000) -> bytes:
    """An object under key `k`, which went by token."""
    data = bytes_of(size)
    assert client.put("k", data)["status"] == "ok"
    assert server.objects["kv/k"].data == data
    return data


# --------------------------------------------------------------------------------------------- a server that keeps its word


def test_bytes_move_without_bodies(server: DellServer, client: RegionClient, bytes_of):
    for size in SIZES:
        data = bytes_of(size)
        outcome = client.put(f"k{size}", data)
        assert outcome["status"] == "ok" and outcome["bytes"] == size, outcome
        assert server.objects[f"kv/k{size}"].data == data
        outcome, got = client.get(f"k{size}", size)
        assert outcome["status"] == "ok" and outcome["bytes"] == outcome["size"] == size, outcome
        assert got == data
    assert client.is_straight()
    moved = server.requests("PUT") + server.requests("GET")
    assert len(moved) == 2 * len(SIZES), "each once, and nothing but these"
    assert all(one.token and one.body_bytes == one.answer_bytes == 0 for one in moved), moved
    assert not any("kvern" in one.target for one in server.log), "no kvern server, so it is not asked as one"


def test_parts_and_buffers_larger_than_the_value(server: DellServer, client: RegionClient, bytes_of):
    data = stored(server, client, bytes_of)
    for offset, length in ((0, 10), (500, 4096), (69_999, 1)):
        outcome, got = client.get("k", length, f"{offset} {length}")
        assert outcome["status"] == "ok" and outcome["size"] == len(data), outcome
        assert got == data[offset:offset + length]
    outcome, got = client.get("k", 100_000)
    assert outcome["status"] == "ok" and outcome["bytes"] == len(data), outcome
    assert got == data + bytes([UNTOUCHED]) * 30_000
    assert all(one.answer_bytes == 0 for one in server.requests("GET"))
    outcome, got = client.get("k", 10)
    assert outcome["status"] == "failed", "it has no room"


def test_what_is_not_there_is_a_miss_and_what_is_there_is_not_made_again(server: DellServer, client: RegionClient, bytes_of):
    assert client.get("never", 100)[0]["status"] == "miss"
    data = stored(server, client, bytes_of)
    assert client.put("new", data, "absent")["status"] == "ok"
    outcome = client.put("new", data[::-1], "absent")
    assert outcome["status"] == "failed" and "exists" in outcome["error"], outcome
    assert server.objects["kv/new"].data == data
    assert all(one.token for one in server.requests("PUT", "kv/new")) and client.is_straight()


def test_tokens_go_over_the_wire_once(server: DellServer, client: RegionClient, bytes_of):
    """The server refuses a second use, and a token for the other direction."""
    stored(server, client, bytes_of)
    for _ in range(5):
        assert client.get("k", 70_000)[0]["status"] == "ok"
    sent = [one.token for one in server.log if one.token]
    assert len(sent) == len(set(sent)) == 6


# ------------------------------------------------------------------------------------------- servers that know no tokens


@pytest.mark.parametrize("how", [Tokens.BLIND, Tokens.BLIND_BUT_SUMS, Tokens.REFUSES, Tokens.DECLINES])
@pytest.mark.parametrize("condition", ["", "absent"])
@pytest.mark.parametrize("delete_conditions", [True, False])
def test_a_server_without_tokens_gets_the_bytes_over_http(server: DellServer, client: RegionClient, bytes_of, how: Tokens, condition: str,
                                                          delete_conditions: bool):
    server.how, server.delete_conditions = how, delete_conditions
    data = bytes_of(70_000)
    outcome = client.put("k", data, condition)
    assert outcome["status"] == "ok", outcome
    assert server.objects["kv/k"].data == data, "whatever it stored first"
    assert [bool(one.token) for one in server.requests("PUT", "kv/k")] == [True, False]
    if how is Tokens.BLIND:
        assert server.ever_empty == {"kv/k"}, "the trap was there"
    outcome, got = client.get("k", len(data))
    assert outcome["status"] == "ok" and got == data
    assert not client.is_straight()
    assert "no transfers straight into memory" in client.said()
    client.put("k2", data)
    assert [bool(one.token) for one in server.requests("PUT", "kv/k2")] == [False], "left alone for a while"


@pytest.mark.parametrize("how", [Tokens.BLIND, Tokens.DECLINES])
def test_a_get_that_was_not_taken_has_its_bytes_in_the_same_answer(server: DellServer, client: RegionClient, bytes_of, how: Tokens):
    data = stored(server, client, bytes_of)
    server.how = how
    outcome, got = client.get("k", len(data))
    assert outcome["status"] == "ok" and got == data
    assert len(server.requests("GET")) == 1 and not client.is_straight()


def test_what_a_server_refuses_for_its_own_reasons_is_an_error_and_no_end_of_the_way(server: DellServer, client: RegionClient, bytes_of):
    stored(server, client, bytes_of)
    server.how = Tokens.FAILS
    outcome, got = client.get("k", 70_000)
    assert outcome["status"] == "failed" and "500" in outcome["error"], outcome
    assert set(got) == {UNTOUCHED}
    server.how = Tokens.HONEST


# ------------------------------------------------------------------------------------------- successes that are none


@pytest.mark.parametrize("how", [Tokens.SHORT, Tokens.CLAIMS])
def test_a_get_whose_bytes_did_not_come_is_never_a_success(server: DellServer, client: RegionClient, dialect: str, bytes_of, how: Tokens):
    data = stored(server, client, bytes_of)
    server.how = how
    outcome, _ = client.get("k", len(data))
    # What moved is all that tells the size in the one dialect, and a look in the other; the checksum decides in both.
    why = {"aws": "do not have the checksum", "dell": "other bytes are in memory"}[dialect]
    assert outcome["status"] == "failed" and why in outcome["error"], outcome
    assert server.requests("GET")[0].token and server.requests("GET")[0].answer_bytes == 0
    server.how = Tokens.HONEST
    outcome, got = client.get("k", len(data))
    assert outcome["status"] == "ok" and got == data, outcome


@pytest.mark.parametrize(("dialect", "how"), [("aws", Tokens.SHORT), ("dell", Tokens.SHORT), ("dell", Tokens.CLAIMS)], indirect=["dialect"])
def test_a_put_that_stored_something_else_does_not_stay(server: DellServer, client: RegionClient, bytes_of, how: Tokens):
    """A look finds out, or the number that is told. (One that lies about the number and does not verify the checksum is
    found out by the next read.)"""
    server.how = how
    data = bytes_of(70_000)
    outcome = client.put("k", data)
    assert outcome["status"] == "ok", outcome
    assert server.objects["kv/k"].data == data
    assert [bool(one.token) for one in server.requests("PUT")] == [True, False]


@pytest.mark.parametrize("how", [Tokens.MUTE, Tokens.SILENT_PUTS])
@pytest.mark.parametrize("dialect", ["aws"], indirect=True)
def test_a_reply_that_does_not_tell_the_number_is_proven_by_a_look(server: DellServer, client: RegionClient, bytes_of, how: Tokens):
    server.how = how
    data = stored(server, client, bytes_of)
    outcome, got = client.get("k", len(data))
    assert outcome["status"] == "ok" and got == data
    assert all(one.token for one in server.requests("PUT") + server.requests("GET"))
    assert len(server.requests("HEAD")) == (2 if how is Tokens.MUTE else 1) and client.is_straight()


@pytest.mark.parametrize("dialect", ["dell"], indirect=True)
def test_without_a_checksum_nothing_is_believed_of_a_put(server: DellServer, client: RegionClient, bytes_of):
    """The size alone could be that of other bytes."""
    server.sums = False
    data = bytes_of(70_000)
    assert client.put("k", data)["status"] == "ok"
    assert server.objects["kv/k"].data == data
    assert [bool(one.token) for one in server.requests("PUT")] == [True, False]


# -------------------------------------------------------------------------------------------- which dialect, which library


@pytest.mark.parametrize("dialect", ["aws"], indirect=True)
def test_a_dialect_is_found_where_a_server_tells(server: DellServer, client_of, bytes_of):
    server.heads_reply = True
    client = client_of(server, "dialect=auto")
    stored(server, client, bytes_of)
    assert client.is_straight()
    (probe,) = [one for one in server.requests("HEAD") if one.token]
    assert probe.key.endswith(".kvern-probe/fabric")


def test_a_dialect_that_is_not_told_is_not_guessed(server: DellServer, client_of, bytes_of):
    client = client_of(server, "dialect=auto")
    stored(server, client, bytes_of)
    assert not client.is_straight()
    assert "dialect=dell" in client.said() and "dialect=aws" in client.said()
    assert not any(one.token for one in server.requests("PUT"))


def test_without_the_library_bytes_go_over_http_and_the_log_says_why(server: DellServer, client_of, dialect: str, bytes_of):
    for environment, why in (({"KVERN_CUOBJECT_LIBRARY": "libthere-is-none.so.1"}, "CUDA 13.1.1"), ({"KVERN_FAKE_CUOBJECT": "unconnected"}, "not connected"),
                             ({"KVERN_FAKE_CUOBJECT": "unregistered"}, "does not register"), ({"KVERN_FAKE_CUOBJECT": "suffixed"}, "not the descriptor")):
        client = client_of(server, f"dialect={dialect}", environment)
        data = stored(server, client, bytes_of)
        assert client.get("k", len(data))[1] == data
        assert not client.is_straight() and why in client.said(), client.said()
        client.end()
    assert not any(one.token for one in server.log)


def test_dc_without_a_card_goes_over_http_and_the_log_says_why(server: DellServer, client_of, dialect: str, bytes_of):
    if list(Path("/sys/class/infiniband").glob("mlx5*")):
        pytest.skip("there is a card here")
    client = client_of(server, f"dialect={dialect}", rdma="dc")
    stored(server, client, bytes_of)
    assert "no ConnectX here" in client.said() or "can't be loaded" in client.said(), client.said()


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_kvern_serve_declines_descriptors_and_loses_nothing(serve, bucket: str, client_of, dialect: str, bytes_of, monkeypatch):
    monkeypatch.setattr("test_dell.BUCKET", bucket)
    client = client_of(serve.endpoint.url, f"dialect={dialect}")
    data = bytes_of(70_000)
    assert client.put("k", data)["status"] == "ok"
    assert serve.boto3().get_object(Bucket=bucket, Key="kv/k")["Body"].read() == data
    outcome, got = client.get("k", len(data))
    assert outcome["status"] == "ok" and got == data
    assert not client.is_straight()
