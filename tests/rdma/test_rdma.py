# SPDX-License-Identifier: Apache-2.0
"""In one guest with soft-RoCE: its RDMA device, and the store `file:` on NFS over RDMA, mounted in several ways.

The guest boots once and does all steps; each test looks at one of them.
"""
from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from guest import ROOT, Ended, Guest, script

BUILD = Path(os.environ.get("KVERN_BUILD", ROOT / "build" / "release"))
TIMEOUT_S = 300
ADDRESS, NFS_PORT = "10.77.0.1", 20049
EXPORT, MOUNT = "/srv/kv", "/mnt/kv"
URI = f"file://{MOUNT}"
MOUNTS = ("vers=4.2", "vers=3,nconnect=2")  # Linux 6.1 has several connections over RDMA for NFS 3 only
READERS = ("io=uring&direct=on", "io=threads&direct=on", "io=auto&direct=off")
VALUES = {size: random.Random(size).randbytes(size) for size in (4097, 3_000_001)}
PART = (4095, 100_000)  # offset and length, in the longest
DAMAGED = f"{'5a' * 32}/00/{'00' * 32}.p{'0' * 16}.g0.l0-1.h0-0"  # an object's name
# What other operations than those of the command need of a mount: conditions, attributes, several at once.
CONFORMANCE = (
    "PutAbsentChangesNothingThatExists", "PutWithEtagReplacesOnlyThatVersion", "RemoveWithEtagRemovesOnlyThatVersion",
    "OneOfManyPutsOfAnAbsentKeyWins", "OnePutOfManyWithTheSameEtagWins", "KeepsMetadataOrSaysThatItCannot",
)


@functools.cache
def program(name: str) -> Path:
    found = [path for path in BUILD.rglob(name) if path.is_file() and os.access(path, os.X_OK)]
    assert found, f"{BUILD} has no program {name}: ./run build"
    return found[0]


def sha256(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def store_steps(mount: str) -> Iterator[tuple[str, str]]:
    """Mounts, uses the store in every way, and unmounts. Puts leave nothing in the page cache: they are direct."""
    kvern, sizes, longest = program("kvern"), " ".join(map(str, VALUES)), max(VALUES)
    remote = "/" if mount.startswith("vers=4") else EXPORT
    yield "mount", f"timeout 30 mount -t nfs -o proto=rdma,port={NFS_PORT},{mount} {ADDRESS}:{remote} {MOUNT}"
    yield "mounted", f"grep ' {MOUNT} ' /proc/mounts"
    yield "put", f"for size in {sizes}; do {kvern} put '{URI}' values/$size /out/values/$size --json; done"
    yield "kept", f"cd {EXPORT}/values && sha256sum {sizes}"
    for reader in READERS:
        yield f"get {reader}", f"for size in {sizes}; do {kvern} get '{URI}?{reader}' values/$size | sha256sum; done"
    yield "part", f"{kvern} get '{URI}' values/{longest} --offset {PART[0]} --length {PART[1]} | sha256sum"
    yield "ls", f"{kvern} ls '{URI}' values/ --json"
    yield "stat", f"{kvern} stat '{URI}' values/{longest} --json"
    yield "conformance", (f"TMPDIR={MOUNT} timeout 60 {program('kvern_store_tests')} --gtest_filter="
                          + ":".join(f"Engines/StoreConformance.{name}/file_auto" for name in CONFORMANCE))
    yield "damage", f"mkdir -p {MOUNT}/{Path(DAMAGED).parent} && echo damaged >{MOUNT}/{DAMAGED}"
    yield "fsck", f"{kvern} fsck '{URI}' --json 2>/dev/null"
    yield "rm", f"for size in {sizes}; do {kvern} rm '{URI}' values/$size; done; ls {EXPORT}/values"
    yield "traffic", "grep -E '^\\s(bytes|xprt):' /proc/self/mountstats"
    yield "unmount", f"umount {MOUNT} && rm -rf {EXPORT}/*"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("guest")
    (folder / "values").mkdir()
    for size, value in VALUES.items():
        (folder / "values" / str(size)).write_bytes(value)
    steps = {
        "rxe0": f"tests/rdma/rxe_up.sh {ADDRESS}/24 && ibv_devinfo -d rxe0",
        "nfs-server": f"tests/rdma/nfs_server.sh {EXPORT} {NFS_PORT} && mkdir {MOUNT}",
        **{f"{mount} {name}": command for mount in MOUNTS for name, command in store_steps(mount)},
    }
    return Guest(folder).run(script(steps), TIMEOUT_S)


def test_the_guest_does_all_of_it(done: Ended):
    done.check()


def test_the_guest_has_an_rdma_device(done: Ended):
    assert re.search(r"state:\s+PORT_ACTIVE", done.passed("rxe0"))


def test_the_guest_serves_nfs(done: Ended):
    done.passed("nfs-server")


@pytest.mark.parametrize("mount", MOUNTS)
def test_the_mount_is_over_rdma(done: Ended, mount: str):
    done.passed(f"{mount} mount")
    options = done.passed(f"{mount} mounted").split()[3].split(",")
    assert {"proto=rdma", f"port={NFS_PORT}", *mount.split(",")} <= set(options)


@pytest.mark.parametrize("mount", MOUNTS)
def test_bytes_went_over_every_connection(done: Ended, mount: str):
    counted, *connections = [line.split()[1:] for line in done.passed(f"{mount} traffic").splitlines()]
    assert int(counted[2]) > max(VALUES), "nothing was read with O_DIRECT"
    assert [line[0] for line in connections] == ["rdma"] * (2 if "nconnect=2" in mount else 1)
    assert all(int(line[15]) > PART[1] for line in connections), connections  # bytes of replies that RDMA placed


@pytest.mark.parametrize("mount", MOUNTS)
def test_the_server_keeps_what_was_put(done: Ended, mount: str):
    put = [json.loads(line)["size_bytes"] for line in done.passed(f"{mount} put").splitlines()]
    assert put == list(VALUES)
    kept = [line.split()[0] for line in done.passed(f"{mount} kept").splitlines()]
    assert kept == [sha256(value) for value in VALUES.values()]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("mount", MOUNTS)
def test_what_was_put_comes_back(done: Ended, mount: str, reader: str):
    got = [line.split()[0] for line in done.passed(f"{mount} get {reader}").splitlines()]
    assert got == [sha256(value) for value in VALUES.values()]


@pytest.mark.parametrize("mount", MOUNTS)
def test_a_part_comes_back(done: Ended, mount: str):
    offset, length = PART
    assert done.passed(f"{mount} part").split()[0] == sha256(VALUES[max(VALUES)][offset:offset + length])


@pytest.mark.parametrize("mount", MOUNTS)
def test_values_are_listed_as_they_are(done: Ended, mount: str):
    entries = json.loads(done.passed(f"{mount} ls"))["entries"]
    assert {entry["key"]: entry["size_bytes"] for entry in entries} == {f"values/{size}": size for size in VALUES}
    stat = json.loads(done.passed(f"{mount} stat"))
    assert [entry["etag"] for entry in entries if entry["key"] == stat["key"]] == [stat["etag"]]


@pytest.mark.parametrize("name", CONFORMANCE)
@pytest.mark.parametrize("mount", MOUNTS)
def test_the_store_conforms(done: Ended, mount: str, name: str):
    output = done.step(f"{mount} conformance").output
    (verdict,) = re.findall(rf"^\[ +([A-Z]+) +\] Engines/StoreConformance\.{name}/file_auto\b.*ms\)$", output, re.MULTILINE)
    assert verdict == ("SKIPPED" if "Metadata" in name and "vers=3" in mount else "OK"), output


@pytest.mark.parametrize("mount", MOUNTS)
def test_fsck_finds_what_is_damaged(done: Ended, mount: str):
    found = done.step(f"{mount} fsck")
    assert found.status == 1, found.output
    assert json.loads(found.output)["bad"] == 1


@pytest.mark.parametrize("mount", MOUNTS)
def test_what_was_removed_is_gone(done: Ended, mount: str):
    assert done.passed(f"{mount} rm") == ""
    done.passed(f"{mount} unmount")
