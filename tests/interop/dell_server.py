# SPDX-License-Identifier: Apache-2.0
"""A small S3 server that moves bytes one-sidedly, as storage with RDMA does, for clients whose descriptors are those of
tests/fabric/fake_cuobjclient.cc: they name memory of a process of this host, which is reached by process_vm_readv and
process_vm_writev. Nothing of it is RDMA, and nothing here was tried with anybody's storage.

It runs in threads of the tests' own process, which look into `objects` and `log`. It knows objects, parts of them, ETags,
CRC64NVME and conditions; no signatures, lists or uploads. `how` says what it does with tokens.

    with DellServer("dell") as server:
        server.how = Tokens.CLAIMS
"""
from __future__ import annotations

import base64
import ctypes
import enum
import itertools
import os
import re
import struct
import threading
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from awscrt import checksums

DESCRIPTOR = re.compile(r"([0-9a-f]{16}):([0-9a-f]{8}):([0-9a-f]{8}):([0-9a-f]{4}):([0-9a-f]{6}):([01]):([0-9a-f]{32})")
GET, PUT = 1, 2  # as the stand-in's lid field says
SUM = "x-amz-checksum-crc64nvme"


class Tokens(enum.Enum):
    HONEST = "moves the bytes, and says so where the dialect has a word for it"
    BLIND = "does not know the header, and believes any checksum"
    BLIND_BUT_SUMS = "does not know the header, and finds that an empty body has not the checksum of the request"
    REFUSES = "does not know the header, and answers that it is not implemented"
    DECLINES = "knows the header, and wants a body"
    MUTE = "moves the bytes, and does not say how many"
    SILENT_PUTS = "moves the bytes, and says nothing of a PUT but 200"
    SHORT = "moves half of the bytes, and says success"
    CLAIMS = "moves nothing, and says that it has"
    FAILS = "answers 500"


@dataclass(frozen=True)
class Dialect:
    token: str
    reply: str = ""
    moved: str = ""


DIALECTS = {"aws": Dialect("x-amz-rdma-token", "x-amz-rdma-reply", "x-amz-rdma-bytes-transferred"), "dell": Dialect("x-rdma-info")}


@dataclass
class Stored:
    data: bytes
    etag: str
    sum: str
    headers: dict[str, str] = field(default_factory=dict)  # x-amz-meta-…


@dataclass
class Seen:
    """One request and its answer."""

    method: str
    target: str
    key: str
    token: str | None
    body_bytes: int
    status: int = 0
    answer_bytes: int = 0


class Part(ctypes.Structure):  # iovec
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


LIBC = ctypes.CDLL(None, use_errno=True)
for call in (LIBC.process_vm_readv, LIBC.process_vm_writev):
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_int, ctypes.POINTER(Part), ctypes.c_ulong, ctypes.POINTER(Part), ctypes.c_ulong, ctypes.c_ulong]


@dataclass(frozen=True)
class Memory:
    """What a descriptor names."""

    address: int
    size: int
    pid: int
    operation: int
    serial: int

    @classmethod
    def of(cls, token: str) -> Memory | None:
        found = DESCRIPTOR.fullmatch(token)
        if not found:
            return None
        address, size, pid, operation, serial = (int(found[i], 16) for i in range(1, 6))
        return cls(address, size, pid, operation, serial)

    def _move(self, call, buffer: ctypes.Array, size: int) -> None:
        here, there = Part(ctypes.addressof(buffer), size), Part(self.address, size)
        moved = call(self.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if moved != size:
            raise OSError(ctypes.get_errno(), f"moved {moved} of {size}: {os.strerror(ctypes.get_errno())}")

    def read(self) -> bytes:
        buffer = ctypes.create_string_buffer(self.size)
        self._move(LIBC.process_vm_readv, buffer, self.size)
        return buffer.raw

    def write(self, data: bytes) -> None:
        if data:
            self._move(LIBC.process_vm_writev, ctypes.create_string_buffer(data, len(data)), len(data))


def sum_of(data: bytes) -> str:
    return base64.b64encode(struct.pack(">Q", checksums.crc64nvme(data))).decode()


class Refused(Exception):
    def __init__(self, status: int, code: str, headers: dict[str, str] | None = None):
        super().__init__(code)
        self.status, self.code, self.headers = status, code, headers or {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listener

    def log_message(self, format: str, *args) -> None:
        pass

    def handle_one(self) -> None:
        of = self.server.of
        parts = urlsplit(self.path)
        key = unquote(parts.path).partition("/")[2].partition("/")[2]
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        seen = Seen(self.command, self.path, key, self.headers.get(of.dialect.token), len(body))
        try:
            with of.lock:
                of.log.append(seen)
                status, headers, data = of.answer(self, seen, parse_qs(parts.query, keep_blank_values=True), body)
        except Refused as refused:
            data = f"<Error><Code>{refused.code}</Code><Message>as told</Message></Error>".encode()
            status, headers = refused.status, {"Content-Type": "application/xml", **refused.headers}
        seen.status, seen.answer_bytes = status, 0 if self.command == "HEAD" else len(data)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_one


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    of: DellServer


class DellServer:
    def __init__(self, dialect: str):
        self.dialect = DIALECTS[dialect]
        self.how = Tokens.HONEST
        self.sums = True  # tells checksums
        self.heads_reply = False  # whether a HEAD with a token has the header of a reply: Ceph's has none
        self.delete_conditions = True  # takes If-Match of a DELETE
        self.objects: dict[str, Stored] = {}
        self.log: list[Seen] = []
        self.ever_empty: set[str] = set()  # keys that had an empty object for a while
        self.tokens: set[tuple[int, int]] = set()
        self.lock = threading.Lock()
        self.versions = itertools.count(1)

    def __enter__(self) -> DellServer:
        self.listener = Listener(("127.0.0.1", 0), Handler)
        self.listener.of = self
        self.thread = threading.Thread(target=self.listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.listener.shutdown()
        self.thread.join()
        self.listener.server_close()

    @property
    def port(self) -> int:
        return self.listener.server_address[1]

    def requests(self, method: str, key: str = "") -> list[Seen]:
        with self.lock:
            return [one for one in self.log if one.method == method and (not key or one.key == key)]

    # All below: under the lock.

    def answer(self, request: Handler, seen: Seen, query: dict, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if not seen.key or query:
            raise Refused(501, "NotImplemented")
        if seen.method == "DELETE":
            return self.delete(request, seen)
        if seen.method == "HEAD":
            reply = {self.dialect.reply: "200"} if seen.token and self.heads_reply and self.dialect.reply else {}
            try:
                status, headers, data = self.get(request, seen, None)
            except Refused as refused:
                raise Refused(refused.status, refused.code, reply) from None
            return status, {**headers, **reply, "Content-Length": str(len(data))}, b""
        memory = self.memory_of(seen)
        return self.put(request, seen, body, memory) if seen.method == "PUT" else self.get(request, seen, memory)

    def memory_of(self, seen: Seen) -> Memory | None:
        """What the token names, where there is one and it is looked at."""
        if seen.token is None or self.how in (Tokens.BLIND, Tokens.BLIND_BUT_SUMS):
            return None
        if self.how is Tokens.REFUSES:
            raise Refused(501, "NotImplemented")
        if self.how is Tokens.FAILS:
            raise Refused(500, "InternalError")
        memory = Memory.of(seen.token)
        if not memory or memory.operation != {"GET": GET, "PUT": PUT}[seen.method]:
            raise Refused(400, "InvalidRDMAToken")
        if (memory.pid, memory.serial) in self.tokens:
            raise Refused(400, "TokenUsedTwice")
        self.tokens.add((memory.pid, memory.serial))
        if self.how is Tokens.DECLINES:
            if seen.method == "PUT":
                raise Refused(501, "NotImplemented", {self.dialect.reply: "501"} if self.dialect.reply else None)
            return None
        return memory

    def check_conditions(self, request: Handler, stored: Stored | None) -> None:
        match = request.headers.get("if-match")
        if request.headers.get("if-none-match") == "*" and stored or match and (not stored or match.strip('"') != stored.etag):
            raise Refused(412, "PreconditionFailed")

    def put(self, request: Handler, seen: Seen, body: bytes, memory: Memory | None) -> tuple[int, dict[str, str], bytes]:
        if memory:
            body = bytes(memory.size) if self.how is Tokens.CLAIMS else memory.read()
            body = body[: len(body) // 2] if self.how is Tokens.SHORT else body
        told, found = request.headers.get(SUM), sum_of(body)
        lies = self.how in (Tokens.BLIND, Tokens.SHORT, Tokens.CLAIMS) and seen.token is not None
        if told and told != found and not lies:
            raise Refused(400, "BadDigest")
        self.check_conditions(request, self.objects.get(seen.key))
        kept = {name.lower(): value for name, value in request.headers.items() if name.lower().startswith("x-amz-meta-")}
        # What only believes a checksum keeps what it was told.
        stored = Stored(body, f"v{next(self.versions)}", told if told and self.how is Tokens.BLIND else found, kept)
        self.objects[seen.key] = stored
        if not body:
            self.ever_empty.add(seen.key)
        quiet = self.how is Tokens.SILENT_PUTS
        return 200, {"ETag": f'"{stored.etag}"', **({} if quiet else self.reply(memory, 200, len(body)))}, b""

    def get(self, request: Handler, seen: Seen, memory: Memory | None) -> tuple[int, dict[str, str], bytes]:
        stored = self.objects.get(seen.key)
        if not stored:
            raise Refused(404, "NoSuchKey")
        status, data = 200, stored.data
        headers = {"ETag": f'"{stored.etag}"', "Last-Modified": formatdate(0, usegmt=True), **stored.headers}
        if self.sums and request.headers.get("x-amz-checksum-mode") == "ENABLED":
            headers |= {SUM: stored.sum, "x-amz-checksum-type": "FULL_OBJECT"}
        if part := re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", "")):
            first, last = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
            if first >= len(data):
                raise Refused(416, "InvalidRange")
            status, headers["Content-Range"] = 206, f"bytes {first}-{last}/{len(data)}"
            data = data[first:last + 1]
        if not memory or len(data) > memory.size:
            declined = {self.dialect.reply: "501"} if seen.token and self.dialect.reply and self.how is Tokens.DECLINES else {}
            return status, {**headers, **declined}, data
        moved = data[: len(data) // 2] if self.how is Tokens.SHORT else data
        if self.how is not Tokens.CLAIMS:
            memory.write(moved)
        return status, {**headers, **self.reply(memory, status, len(moved))}, b""

    def delete(self, request: Handler, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        if "if-match" in request.headers and not self.delete_conditions:
            raise Refused(501, "NotImplemented")
        self.check_conditions(request, self.objects.get(seen.key))
        self.objects.pop(seen.key, None)
        return 204, {}, b""

    def reply(self, memory: Memory | None, status: int, moved: int) -> dict[str, str]:
        if not memory or not self.dialect.reply:
            return {}
        return {self.dialect.reply: str(status), **({} if self.how is Tokens.MUTE else {self.dialect.moved: str(moved)})}
