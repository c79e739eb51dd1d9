# SPDX-License-Identifier: Apache-2.0
"""HTTP by hand, for requests that no client would send: a signer of our own and a plain socket."""
from __future__ import annotations

import datetime
import hashlib
import hmac
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import quote

from servers import REGION, Endpoint

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_CHUNKS_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_CHUNKS_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


def hmac_sha256(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Signature:
    """What a signed request leaves for the chunks of its body."""

    key: bytes
    time: str
    scope: str
    seed: str

    def of_chunk(self, data: bytes) -> str:
        """The signature of the next chunk; each depends on the one before."""
        text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", self.time, self.scope, self.seed, EMPTY_SHA256, sha256(data)])
        self.seed = hmac_sha256(self.key, text).hex()
        return self.seed

    def of_trailer(self, lines: str) -> str:
        text = "\n".join(["AWS4-HMAC-SHA256-TRAILER", self.time, self.scope, self.seed, sha256(lines.encode())])
        return hmac_sha256(self.key, text).hex()


@dataclass
class Request:
    """A request as bytes; `sign` adds what proves who asks. Header values are sent as they stand."""

    endpoint: Endpoint
    method: str
    path: str  # encoded
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    payload: str = UNSIGNED  # x-amz-content-sha256
    signature: Signature | None = None

    def sign(self, at: datetime.datetime | None = None) -> Request:
        time = (at or datetime.datetime.now(datetime.timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
        self.headers = {"host": self.endpoint.address, **self.headers, "x-amz-date": time, "x-amz-content-sha256": self.payload}
        signed = {name.lower(): " ".join(value.split()) for name, value in self.headers.items()
                  if name.lower() in ("host", "range", "content-md5") or name.lower().startswith("x-amz-")}
        names = ";".join(sorted(signed))
        canonical = "\n".join([self.method, self.path, self.query_text(),
                               *(f"{name}:{signed[name]}" for name in sorted(signed)), "", names, self.payload])
        scope = f"{time[:8]}/{REGION}/s3/aws4_request"
        key = ("AWS4" + self.endpoint.secret).encode()
        for part in scope.split("/"):
            key = hmac_sha256(key, part)
        text = "\n".join(["AWS4-HMAC-SHA256", time, scope, sha256(canonical.encode())])
        seed = hmac_sha256(key, text).hex()
        self.headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.endpoint.access}/{scope},"
                                         f"SignedHeaders={names},Signature={seed}")
        self.signature = Signature(key, time, scope, seed)
        return self

    def query_text(self) -> str:
        return "&".join(f"{quote(name, safe='-._~')}={quote(value, safe='-._~')}" for name, value in sorted(self.query.items()))

    def head(self) -> bytes:
        target = self.path + ("?" + self.query_text() if self.query else "")
        lines = [f"{self.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """S3's name of the error."""
        text = self.body.decode(errors="replace")
        return text.partition("<Code>")[2].partition("</Code>")[0]


class Wire:
    """A connection. Reading raises ConnectionError where the peer closed without an answer."""

    def __init__(self, endpoint: Endpoint, timeout_s: float = 30.0):
        self.socket = socket.create_connection((endpoint.host, endpoint.port), timeout_s)
        if endpoint.tls:
            context = ssl.create_default_context(cafile=str(endpoint.ca))
            self.socket = context.wrap_socket(self.socket, server_hostname=endpoint.host)
        self.buffer = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def more(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError(f"closed after {self.buffer[:200]!r}")
        return data

    def line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self.buffer += self.more()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            self.buffer += self.more()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def answer(self, to_head: bool = False) -> Answer:
        """The next answer; interim ones are answers, too."""
        version, status, *_ = self.line().split(b" ")
        assert version == b"HTTP/1.1", version
        headers: dict[str, str] = {}
        while line := self.line():
            name, _, value = line.decode("latin-1").partition(":")
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value.strip()
        silent = to_head or status in (b"100", b"204", b"304")
        length = 0 if silent else int(headers.get("content-length", 0))
        return Answer(int(status), headers, self.exactly(length))

    def ask(self, request: Request, body: bytes = b"") -> Answer:
        self.send(request.head() + body)
        return self.answer(request.method == "HEAD")

    def closed(self) -> bool:
        """The peer has closed, or does within the time limit, and sent nothing more."""
        try:
            return not self.buffer and not self.socket.recv(1)
        except ConnectionError:
            return True


def ask(request: Request, body: bytes = b"", timeout_s: float = 30.0) -> Answer:
    """On a connection of its own."""
    with Wire(request.endpoint, timeout_s) as wire:
        return wire.ask(request, body)


def chunk(data: bytes, extension: str = "") -> bytes:
    return f"{len(data):x}{extension}\r\n".encode() + data + b"\r\n"
