# SPDX-License-Identifier: Apache-2.0
"""`kvern serve` when things go wrong: killed, on a full disk, on bytes that rot, on a store that hangs or is busy, with
more connections than memory. Whatever happens, a client gets its bytes or an error, and never other bytes."""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import load
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from servers import MIB, KvernServe, wait_until
from wire import Request, Wire

BUCKET = "bucket"


def value_of(key: str, size: int) -> bytes:
    """What a key must hold: its bytes follow from its name, so that a mix of two is seen."""
    block = hashlib.sha256(key.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def status_of(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def read(s3, key: str) -> bytes:
    return s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()


# ------------------------------------------------------------------------------------------------------------- killed


class Storm:
    """Writers that remember what they were told, until the server is killed under them."""

    SIZES = {"small": 3000, "whole": 2 * MIB, "pieces": 20 * MIB, "parts": 6 * MIB}

    def __init__(self, server: KvernServe, round_: int):
        self.server, self.round = server, round_
        self.over = threading.Event()
        self.stored: dict[str, int] = {}  # acknowledged, and not asked to be deleted since
        self.deleted: set[str] = set()  # acknowledged
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(4)]

    def work(self, number: int) -> None:
        choose = random.Random(self.round * 100 + number)
        s3 = self.server.boto3(connect_timeout=2, read_timeout=10)
        count = 0
        with contextlib.suppress(ClientError, BotoCoreError):  # the server is gone
            while not self.over.is_set():
                count += 1
                kind = choose.choice(list(self.SIZES))
                key, size = f"{kind}/{self.round}-{number}-{count}", self.SIZES[kind]
                if kind == "parts":
                    self.in_parts(s3, key, size)
                else:
                    s3.put_object(Bucket=BUCKET, Key=key, Body=value_of(key, size))
                with self.lock:
                    self.stored[key] = size
                if choose.random() < 0.4:
                    with self.lock:
                        del self.stored[key]  # from now on either is right
                    s3.delete_object(Bucket=BUCKET, Key=key)
                    with self.lock:
                        self.deleted.add(key)

    def in_parts(self, s3, key: str, size: int) -> None:
        upload, data = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"], value_of(key, size)
        parts = []
        for number, at in enumerate(range(0, size, 5 * MIB), 1):
            told = s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=data[at:at + 5 * MIB])
            parts.append({"PartNumber": number, "ETag": told["ETag"]})
        s3.complete_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})

    def run_and_kill(self, seconds: float) -> None:
        for thread in self.threads:
            thread.start()
        time.sleep(seconds)
        self.server.kill()
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("rounds", [3, pytest.param(25, marks=pytest.mark.long)])
def test_a_killed_server_leaves_whole_objects_and_all_it_acknowledged(own_serve, rounds: int):
    server = own_serve()
    server.boto3().create_bucket(Bucket=BUCKET)
    stored: dict[str, int] = {}
    deleted: set[str] = set()
    acknowledged = 0
    for round_ in range(rounds):
        storm = Storm(server, round_)
        storm.run_and_kill(random.uniform(0.3, 1.5))
        stored |= storm.stored
        deleted |= storm.deleted
        acknowledged += len(storm.stored)
        server.start()
        s3 = server.boto3()
        there = {one["Key"]: one["Size"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
                 for one in page.get("Contents", [])}
        assert not stored.keys() - there.keys(), "acknowledged, and gone"
        assert not deleted & there.keys(), "deleted, and back again"
        for key, size in there.items():
            assert size == Storm.SIZES[key.split("/")[0]]
            assert read(s3, key) == value_of(key, size), key
        # What was left of uploads can be taken away, and then nothing of them is left in the store.
        for upload in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
            s3.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
        if rounds > 3:
            s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in list(there)[:900]]})
            deleted |= set(list(there)[:900])
            for key in list(there)[:900]:
                stored.pop(key, None)
    print(f"{acknowledged} objects stored, {len(deleted)} deleted over {rounds} kills")
    assert acknowledged > rounds and deleted


def test_requests_under_way_end_before_a_server_that_is_asked_to_stop(own_serve):
    server = own_serve()
    s3 = server.boto3()
    s3.create_bucket(Bucket=BUCKET)
    data, told = os.urandom(48 * MIB), []

    def slowly():
        with Wire(server.endpoint) as wire:
            wire.send(Request(server.endpoint, "PUT", f"/{BUCKET}/k", headers={"content-length": str(len(data))}).sign().head())
            for at in range(0, len(data), MIB):
                wire.send(data[at:at + MIB])
                time.sleep(0.02)
            told.append(wire.answer())

    thread = threading.Thread(target=slowly)
    thread.start()
    time.sleep(0.3)
    assert server.stop() == 0
    thread.join(30)
    assert told and told[0].status == 200 and told[0].headers["connection"] == "close", server.process.tail()
    server.start()
    assert read(server.boto3(), "k") == data


# ---------------------------------------------------------------------------------------------------------- full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """small_disk("24m"): a folder on a file system of that size; needs root."""
    folder, mounted = tmp_path / "disk", []
    folder.mkdir()

    def mount(size: str) -> Path:
        # A real file system in a file: older kernels keep no metadata of files in memory.
        image = tmp_path / "disk.img"
        subprocess.run(["truncate", "-s", size, image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-b", "4096", image], check=True)
        done = subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting a file system is not allowed here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for one in mounted:
        subprocess.run(["umount", "-l", one], check=True)


def test_a_full_disk_refuses_writes_and_serves_reads(own_serve, small_disk):
    disk = small_disk("64m")
    server = own_serve(store=f"file://{disk}")
    s3 = server.boto3()
    s3.create_bucket(Bucket=BUCKET)
    stored = {}
    with pytest.raises(ClientError) as full:
        for number in range(60):
            key = f"k{number}"
            s3.put_object(Bucket=BUCKET, Key=key, Body=value_of(key, 3 * MIB))
            stored[key] = 3 * MIB
    assert full.value.response["Error"]["Code"] == "InsufficientStorage" and status_of(full.value) == 507
    assert len(stored) > 10
    # Also what comes in pieces and in parts is refused, and reading goes on meanwhile.
    for size in (20 * MIB, 1 * MIB, 40 * MIB):
        with contextlib.suppress(ClientError):
            s3.put_object(Bucket=BUCKET, Key="large", Body=value_of("large", size))
        for key in random.sample(sorted(stored), 3):
            assert read(s3, key) == value_of(key, stored[key])
    listed = {one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert stored.keys() <= listed
    # Nothing of what was refused takes room: what is freed can be used at once.
    s3.delete_object(Bucket=BUCKET, Key="large")
    freed = sorted(stored)[:5]
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in freed]})
    for key in freed:
        s3.put_object(Bucket=BUCKET, Key=key, Body=value_of(key, 3 * MIB))
    assert all(read(s3, key) == value_of(key, size) for key, size in stored.items())


# --------------------------------------------------------------------------------------------------------- rotten bytes


def file_of(server: KvernServe, key: str) -> Path:
    """The file below the server that holds a key."""
    path = server.data / "object" / BUCKET / f"{key}#"
    assert path.is_file(), list(server.data.rglob("*"))
    return path


@pytest.mark.parametrize("size", [1, 5000, 65536, 3 * MIB, pytest.param(40 * MIB, marks=pytest.mark.long)])
def test_bits_that_flip_below_the_server_are_never_served(own_serve, size: int):
    server = own_serve()
    s3 = server.boto3()
    s3.create_bucket(Bucket=BUCKET)
    key, data = "victim", value_of("victim", size)
    s3.put_object(Bucket=BUCKET, Key="neighbour", Body=b"well")
    choose = random.Random(size)
    for at in {0, size - 1, *(choose.randrange(size) for _ in range(6))}:
        s3.put_object(Bucket=BUCKET, Key=key, Body=data)
        path = file_of(server, key)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ (1 << choose.randrange(8))]))
            os.fsync(file.fileno())
        got = b""
        with pytest.raises((ClientError, BotoCoreError, ConnectionError)) as found:  # refused, or broken off in the middle
            body = s3.get_object(Bucket=BUCKET, Key=key, ChecksumMode="DISABLED")["Body"]
            for piece in body.iter_chunks(64 << 10):
                got += piece
        if isinstance(found.value, ClientError):
            assert status_of(found.value) == 500
        assert data.startswith(got) and len(got) < size, f"bit flip at {at} of {size}"
        # Now it is known: the next reader is told before anything is sent, and what the damaged version is.
        with pytest.raises(ClientError) as found:
            s3.get_object(Bucket=BUCKET, Key=key)
        assert found.value.response["Error"]["Code"] == "ObjectDamaged"
        assert found.value.response["ResponseMetadata"]["HTTPHeaders"]["etag"] == s3.head_object(Bucket=BUCKET, Key=key)["ETag"]
        # A part that does not touch the damage is right; one that does is refused.
        with pytest.raises((ClientError, BotoCoreError, ConnectionError)):
            s3.get_object(Bucket=BUCKET, Key=key, Range=f"bytes={at}-{at}")["Body"].read()
        if size > MIB and at > 64 << 10:
            assert s3.get_object(Bucket=BUCKET, Key=key, Range="bytes=10-99")["Body"].read() == data[10:100]
        assert read(s3, "neighbour") == b"well"
    server.process.check()


@pytest.mark.parametrize("what", ["bytes", "record"])
def test_a_damaged_object_gives_way_to_a_new_one_and_to_whoever_removes_that_version(own_serve, what: str):
    server = own_serve()
    s3 = server.boto3()
    s3.create_bucket(Bucket=BUCKET)
    data = value_of("k", 3 * MIB)

    def damage() -> str:
        """Its ETag, as the server's refusal names it."""
        path = file_of(server, "k")
        if what == "record":
            for name in os.listxattr(path):
                os.removexattr(path, name)
        else:
            with path.open("r+b") as file:
                file.seek(2 * MIB)
                byte = file.read(1)[0]
                file.seek(2 * MIB)
                file.write(bytes([byte ^ 1]))
            with pytest.raises((ClientError, BotoCoreError, ConnectionError)):
                s3.get_object(Bucket=BUCKET, Key="k")["Body"].read()
        with pytest.raises(ClientError) as found:
            s3.get_object(Bucket=BUCKET, Key="k")
        assert found.value.response["Error"]["Code"] == "ObjectDamaged"
        return found.value.response["ResponseMetadata"]["HTTPHeaders"]["etag"]

    s3.put_object(Bucket=BUCKET, Key="k", Body=data)
    damage()
    s3.put_object(Bucket=BUCKET, Key="k", Body=data, IfNoneMatch="*")
    assert read(s3, "k") == data
    with pytest.raises(ClientError) as found:
        s3.put_object(Bucket=BUCKET, Key="k", Body=data, IfNoneMatch="*")
    assert status_of(found.value) == 412
    etag = damage()
    with pytest.raises(ClientError) as found:
        s3.delete_object(Bucket=BUCKET, Key="k", IfMatch='"another"')
    assert status_of(found.value) == 412
    s3.delete_object(Bucket=BUCKET, Key="k", IfMatch=etag)
    with pytest.raises(ClientError) as found:
        s3.head_object(Bucket=BUCKET, Key="k")
    assert status_of(found.value) == 404


def test_what_clients_are_told_of_a_store_names_none_of_its_paths(troubled, tmp_path: Path):
    server, rules = troubled
    s3 = server.boto3()
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"bytes")
    rules.set({"fault": "error", "ops": ["get", "put", "stat", "list"], "keys": "*object/*"})
    for call in (lambda: s3.get_object(Bucket=BUCKET, Key="k"), lambda: s3.put_object(Bucket=BUCKET, Key="k", Body=b""),
                 lambda: s3.list_objects_v2(Bucket=BUCKET)):
        with pytest.raises(ClientError) as found:
            call()
        assert status_of(found.value) in (500, 503) and str(tmp_path) not in found.value.response["Error"]["Message"]


def test_ready_says_in_time_that_the_store_hangs(troubled):
    server, rules = troubled
    assert server.endpoint.get("/-/ready")[0] == 200
    rules.set({"fault": "stall", "ops": ["stat"], "keys": "bucket/ready"})
    start = time.monotonic()
    statuses = [server.endpoint.get("/-/ready") for _ in range(3)]
    assert time.monotonic() - start < 8 and all(status == 503 and b"has not answered" in said for status, said in statuses), statuses
    rules.set()
    server.boto3().list_objects_v2(Bucket=BUCKET)  # with an operation the store looks at its rules again
    for _ in range(100):
        if server.endpoint.get("/-/ready")[0] == 200:
            return
        time.sleep(0.1)
    pytest.fail("the store answers again, and the server is not ready")


def test_an_object_that_was_cut_short_is_an_error(own_serve):
    server = own_serve()
    s3 = server.boto3()
    s3.create_bucket(Bucket=BUCKET)
    for size in (100, 5 * MIB):
        s3.put_object(Bucket=BUCKET, Key="k", Body=value_of("k", size))
        os.truncate(file_of(server, "k"), size // 2)
        for call in (s3.get_object, s3.head_object):
            with pytest.raises(ClientError) as found:
                call(Bucket=BUCKET, Key="k")
            assert status_of(found.value) == 500


def test_metadata_that_rots_is_an_error(own_serve):
    server = own_serve()
    s3 = server.boto3()
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"bytes" * 100, Metadata={"a": "b"})
    path = file_of(server, "k")
    names = os.listxattr(path)
    assert names
    for name in names:
        value = os.getxattr(path, name)
        for at in range(0, len(value), 3):
            os.setxattr(path, name, value[:at] + bytes([value[at] ^ 4]) + value[at + 1:])
            with contextlib.suppress(ClientError):
                got = s3.get_object(Bucket=BUCKET, Key="k")
                assert got["Body"].read() == b"bytes" * 100 and got["Metadata"] == {"a": "b"}, (name, at)
        os.setxattr(path, name, value)
    assert read(s3, "k") == b"bytes" * 100


# ----------------------------------------------------------------------------------------------------- stores in trouble


class Rules:
    """The control file of a fault: store."""

    def __init__(self, path: Path):
        self.path = path
        self.set()

    def set(self, *rules: dict) -> None:
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps({"rules": list(rules)}))
        temporary.replace(self.path)
        time.sleep(0.3)  # until it is looked at again


@pytest.fixture
def troubled(own_serve, tmp_path: Path) -> tuple[KvernServe, Rules]:
    """A server whose store does what it is told."""
    rules = Rules(tmp_path / "rules.json")
    (tmp_path / "below").mkdir()
    server = own_serve(store=f"fault:{rules.path}!file://{tmp_path}/below")
    server.boto3().create_bucket(Bucket=BUCKET)
    return server, rules


def test_a_busy_store_is_slow_down_and_no_miss(troubled):
    server, rules = troubled
    s3 = server.boto3()
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"bytes")
    rules.set({"fault": "busy", "ops": ["get", "stat", "put"]})
    for call in (lambda: s3.get_object(Bucket=BUCKET, Key="k"), lambda: s3.head_object(Bucket=BUCKET, Key="k"),
                 lambda: s3.head_object(Bucket=BUCKET, Key="never"), lambda: s3.put_object(Bucket=BUCKET, Key="k2", Body=b"")):
        with pytest.raises(ClientError) as found:
            call()
        assert status_of(found.value) == 503
    rules.set()
    assert read(s3, "k") == b"bytes"


def test_a_client_that_tries_again_sees_nothing_of_a_busy_store(troubled):
    server, rules = troubled
    s3 = server.boto3(retries={"mode": "standard", "total_max_attempts": 10})
    rules.set({"fault": "busy", "ops": ["get", "put", "stat"], "probability": 0.3})
    for number in range(8):
        s3.put_object(Bucket=BUCKET, Key=f"k{number}", Body=b"bytes")
        assert read(s3, f"k{number}") == b"bytes"


def test_a_store_that_hangs_holds_up_nobody_else(troubled):
    """Requests for one key hang; those for others, and the server's own pages, do not."""
    server, rules = troubled
    s3 = server.boto3()
    for key in ("hangs", "goes"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"bytes")
    rules.set({"fault": "stall", "ops": ["get"], "keys": "*hangs*"})
    waiting = [threading.Thread(target=lambda: read(server.boto3(), "hangs")) for _ in range(20)]
    for thread in waiting:
        thread.start()
    time.sleep(0.5)
    for _ in range(20):
        start = time.monotonic()
        assert read(s3, "goes") == b"bytes" and server.endpoint.get("/-/healthy")[0] == 200
        assert time.monotonic() - start < 5
    rules.set()
    assert read(s3, "goes") == b"bytes"  # with an operation the store looks at its rules again
    for thread in waiting:
        thread.join(30)
        assert not thread.is_alive(), "the store answers again, and the request does not end"


def test_lies_of_a_store_are_found(troubled):
    """It stores half, or flips bits on the way: reads find it."""
    server, rules = troubled
    s3 = server.boto3()
    for fault, on in (("flip", "put"), ("torn", "put"), ("flip", "get"), ("torn", "get")):
        rules.set({"fault": fault, "ops": [on], "keys": "*/k*"} if on == "put" else {"fault": "lost", "ops": ["list"], "times": 1})
        for size in (1000, 2 * MIB):
            key = f"k-{fault}-{on}-{size}"
            with contextlib.suppress(ClientError):
                s3.put_object(Bucket=BUCKET, Key=key, Body=value_of(key, size))
            if on == "get":
                rules.set({"fault": fault, "ops": ["get"], "keys": "*/k*"})
            with contextlib.suppress(ClientError, BotoCoreError, ConnectionError):
                assert s3.get_object(Bucket=BUCKET, Key=key, ChecksumMode="DISABLED")["Body"].read() == value_of(key, size), key
        rules.set()


# -------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("connections, memory", [(64, "128MiB"), pytest.param(256, "256MiB", marks=pytest.mark.long)])
def test_memory_is_bounded_whatever_the_connections_ask_for(own_serve, connections: int, memory: str):
    """All at once, 16 MiB each: many times what the server may hold."""
    server = own_serve("--memory", memory)
    s3 = server.boto3()
    s3.create_bucket(Bucket=BUCKET)
    size, bound = 16 * MIB, int(memory.removesuffix("MiB")) * MIB
    values = [value_of(f"k{i}", size) for i in range(8)]
    peak, over = [0], threading.Event()

    def watch():
        while not over.is_set():
            peak[0] = max(peak[0], server.rss_bytes())
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        stored = load.all_at_once(connections, lambda i, ready: load.put(server.endpoint, f"/{BUCKET}/k{i % 8}", values[i % 8], ready))
        read_ = load.all_at_once(connections, lambda i, ready: load.get(server.endpoint, f"/{BUCKET}/k{i % 8}", ready))
    finally:
        over.set()
        watcher.join()
    assert stored == [200] * connections
    crcs = [zlib.crc32(value) for value in values]
    assert read_ == [(200, size, crcs[i % 8]) for i in range(connections)]
    print(f"peak {peak[0] / MIB:.0f} MiB of {memory}, {connections} connections of 16 MiB")
    assert peak[0] <= bound


def test_more_connections_than_allowed_are_turned_away(own_serve):
    server = own_serve("--connections", "10")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(Wire(server.endpoint)) for _ in range(10)]
        time.sleep(0.3)
        with Wire(server.endpoint, 10) as eleventh:
            assert eleventh.closed()
        held[0].socket.close()
        wait_until(lambda: not_closed(server), "a place is free again", 10)


def not_closed(server: KvernServe) -> bool:
    try:
        return server.endpoint.get("/-/healthy")[0] == 200
    except (ConnectionError, OSError):
        return False
    except Exception:  # http.client says it in its own words
        return False
