# SPDX-License-Identifier: Apache-2.0
"""Requests that no client would send, through plain sockets: what is malformed is refused, and stores nothing."""
from __future__ import annotations

import base64
import contextlib
import datetime
import socket
import time
import zlib

import pytest
from botocore.exceptions import ClientError
from servers import MIB, KvernServe
from wire import (SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED, UNSIGNED_CHUNKS_TRAILER, Answer, Request, Wire, ask, chunk,
                  sha256)

HEAD_LIMIT_S = 15  # of a head to be whole


@pytest.fixture(params=["http", "tls"])
def either(request, serve, serve_tls) -> KvernServe:
    return serve if request.param == "http" else serve_tls


@pytest.fixture
def place(serve: KvernServe, bucket: str):
    """A path in a bucket, and whether something is there."""

    class Place:
        endpoint, path = serve.endpoint, f"/{bucket}/k"
        s3 = serve.boto3()

        def put(self, data: bytes) -> None:
            self.s3.put_object(Bucket=bucket, Key="k", Body=data)

        def get(self) -> bytes | None:
            try:
                return self.s3.get_object(Bucket=bucket, Key="k")["Body"].read()
            except ClientError as error:
                assert error.response["Error"]["Code"] == "NoSuchKey"
                return None

        def request(self, method: str, **given) -> Request:
            return Request(self.endpoint, method, self.path, **given)

        def signed(self, method: str, payload: str = UNSIGNED, **headers: str) -> Request:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            return self.request(method, headers=names, payload=payload).sign()

    return Place()


def refused(answer: Answer, status: int = 400) -> bool:
    return answer.status == status and bool(answer.code) and answer.body.startswith(b"<?xml")


# -------------------------------------------------------------------------------------------------------------- heads


@pytest.mark.parametrize("piece", [1, 7])
def test_a_request_may_come_byte_by_byte(place, piece: int):
    data = bytes(range(256)) * 20
    request = place.signed("PUT", content_length=str(len(data)))
    whole = request.head() + data
    with Wire(place.endpoint) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(whole), piece):
            wire.send(whole[at:at + piece])
        assert wire.answer().status == 200
    assert place.get() == data


def test_requests_may_be_sent_ahead_of_answers(place):
    """Pipelining: answers come in order, also behind one that is an error."""
    place.put(b"0123456789")
    requests = [place.signed("GET", range=f"bytes={i}-{i}") for i in range(5)]
    requests.insert(2, Request(place.endpoint, "GET", place.path + "-missing").sign())
    requests.insert(4, place.signed("HEAD"))
    with Wire(place.endpoint) as wire:
        wire.send(b"".join(request.head() for request in requests))
        answers = [wire.answer(request.method == "HEAD") for request in requests]
    assert [answer.status for answer in answers] == [206, 206, 404, 206, 200, 206, 206]
    assert [answer.body for answer in answers if answer.status == 206] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_put_may_be_followed_by_its_get(place):
    data = b"bytes" * 1000
    with Wire(place.endpoint) as wire:
        wire.send(place.signed("PUT", content_length=str(len(data))).head() + data + place.signed("GET").head())
        assert wire.answer().status == 200
        assert wire.answer().body == data


BROKEN_HEADS = {
    "no request line": b"\r\n\r\n\x00\x01\x02\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no version": b"GET /\r\nHost: x\r\n\r\n",
    "another protocol": b"GET / SPDY/3\r\nHost: x\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a zero byte": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: x\r\nAAAA\r\n\r\n",
    "two lengths": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two lengths in one": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 4\r\n\r\nabcd",
    "a negative length": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a signed length": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\nx",
    "a hexadecimal length": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1\r\n\r\nx",
    "a length beyond 64 bits": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551617\r\n\r\nx",
    "a length and chunks": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in chunks": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    "a coding that hides": b"PUT /b/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("head", BROKEN_HEADS.values(), ids=BROKEN_HEADS)
def test_a_broken_head_is_refused_and_ends_the_connection(serve, head: bytes):
    with Wire(serve.endpoint, 10) as wire:
        wire.send(head)
        with contextlib.suppress(ConnectionError):  # nothing can be said to what is no HTTP
            answer = wire.answer()
            assert 400 <= answer.status < 600 and answer.status not in (401, 404), answer
            assert answer.headers["connection"] == "close", answer
        assert wire.closed()


@pytest.mark.parametrize("text", ["A: " + "b" * 70_000, "\r\n".join(f"A{i}: b" for i in range(2000)), "A" * 70_000 + ": b"],
                         ids=["a long value", "many", "a long name"])
def test_a_head_that_is_too_large_is_refused(serve, text: str):
    with Wire(serve.endpoint) as wire:
        wire.send(f"GET /b/k HTTP/1.1\r\nHost: x\r\n{text}\r\n\r\n".encode())
        assert refused(wire.answer(), 431)
        assert wire.closed()


def test_a_target_that_is_too_long_is_refused(serve):
    answer = ask(Request(serve.endpoint, "GET", "/bucket/" + "k" * 1025).sign())
    assert refused(answer) and answer.code == "KeyTooLongError"


@pytest.mark.parametrize("path", ["/bucket/%", "/bucket/%4", "/bucket/%zz"])
def test_a_broken_escape_is_refused(serve, path: str):
    assert ask(Request(serve.endpoint, "GET", path).sign()).status == 400


def test_dots_are_names_and_lead_nowhere(serve, bucket: str):
    """Nobody leaves a bucket, or the folder of the store, by a path."""
    for path in (f"/{bucket}/../../../../etc/passwd", f"/{bucket}/%2e%2e/%2e%2e/port", f"/{bucket}/..%2f..%2fserve.log"):
        answer = ask(Request(serve.endpoint, "GET", path).sign())
        assert answer.status in (400, 403, 404) and b"root:" not in answer.body, (path, answer)
    for name in ("..", ".", "...", "%2e%2e"):
        assert ask(Request(serve.endpoint, "GET", f"/{name}/k").sign()).status in (400, 403, 404), name


# --------------------------------------------------------------------------------------------------------- slow peers


def test_slow_heads_are_cut_off_and_hold_nobody_up(own_serve):
    """Two hundred connections that send a byte now and then, for ever."""
    server = own_serve()
    s3 = server.boto3()
    s3.create_bucket(Bucket="bucket")
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Wire(server.endpoint, 5)) for _ in range(200)]
        for wire in slow:
            wire.send(b"GET /bucket/k HTTP/1.1\r\nHost: x\r\nA: ")
        start, open_ = time.monotonic(), len(slow)
        while open_ and time.monotonic() < start + HEAD_LIMIT_S + 15:
            before = time.monotonic()
            s3.put_object(Bucket="bucket", Key="k", Body=b"bytes")
            assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"bytes"
            assert time.monotonic() - before < 5
            for wire in list(slow):
                try:
                    wire.send(b"b")
                    wire.socket.settimeout(0.001)
                    wire.answer()
                except (TimeoutError, BlockingIOError):
                    continue
                except OSError:
                    pass
                slow.remove(wire)
            open_ = len(slow)
            time.sleep(0.5)
        assert not open_, f"{open_} are still open after {time.monotonic() - start:.0f} s"
        assert time.monotonic() - start > HEAD_LIMIT_S - 3


def test_a_client_that_stops_in_a_put_leaves_nothing(place):
    place.put(b"before")
    for size, sent in ((100_000, 50_000), (10 * MIB, 10 * MIB - 1), (64 * MIB, 30 * MIB), (64 * MIB, 0)):
        with Wire(place.endpoint) as wire:
            wire.send(place.signed("PUT", content_length=str(size)).head() + b"x" * sent)
            time.sleep(0.1)
        assert place.get() == b"before"


def test_a_client_that_stops_in_chunks_leaves_nothing(place):
    with Wire(place.endpoint) as wire:
        wire.send(place.signed("PUT", transfer_encoding="chunked").head() + chunk(b"x" * MIB) + b"100000\r\nxxx")
        time.sleep(0.1)
    assert place.get() is None
    assert place.s3.list_objects_v2(Bucket=place.path.split("/")[1])["KeyCount"] == 0


def test_a_client_that_closes_its_sending_side_is_told(place):
    with Wire(place.endpoint) as wire:
        wire.send(place.signed("PUT", content_length="1000").head() + b"x" * 999)
        wire.socket.shutdown(socket.SHUT_WR)
        answer = wire.answer()
        assert refused(answer) and answer.code in ("IncompleteBody", "RequestTimeout")
    assert place.get() is None


def test_a_client_that_goes_away_in_a_get_harms_nobody(place):
    data = b"x" * (32 * MIB)
    place.put(data)
    for _ in range(20):
        with Wire(place.endpoint) as wire:
            wire.send(place.signed("GET").head())
            wire.more()
    assert place.get() == data


# ------------------------------------------------------------------------------------------------------------- bodies


def test_an_early_refusal_reaches_a_client_that_still_sends(serve):
    """It sends a hundred MiB for a bucket that is not there; closing early would reset its connection."""
    size = 100 * MIB
    with Wire(serve.endpoint) as wire:
        wire.send(Request(serve.endpoint, "PUT", "/no-such-bucket/k", headers={"content-length": str(size)}).sign().head())
        with contextlib.suppress(OSError):
            for _ in range(size // MIB):
                wire.send(b"x" * MIB)
        answer = wire.answer()
    assert answer.status == 404 and answer.code == "NoSuchBucket"


def test_continue_is_said_only_to_who_may_go_on(place):
    with Wire(place.endpoint) as wire:
        wire.send(place.signed("PUT", content_length="5", expect="100-continue").head())
        assert wire.answer().status == 100
        wire.send(b"bytes")
        assert wire.answer().status == 200
    assert place.get() == b"bytes"
    wrong = place.signed("PUT", content_length="5", expect="100-continue")
    wrong.headers["authorization"] = wrong.headers["authorization"][:-1] + ("0" if wrong.headers["authorization"][-1] != "0" else "1")
    with Wire(place.endpoint) as wire:
        wire.send(wrong.head())
        answer = wire.answer()
        assert refused(answer, 403) and answer.code == "SignatureDoesNotMatch"


def test_a_body_without_a_length_is_refused(place):
    answer = ask(place.signed("PUT"))
    assert refused(answer, 411) and answer.code == "MissingContentLength"


def test_a_body_in_chunks_is_stored_without_them(place):
    data = b"some bytes" * 30_000
    body = chunk(data[:1]) + chunk(data[1:200_000], ";name=value") + chunk(data[200_000:]) + b"0\r\nx-trailer: y\r\n\r\n"
    assert ask(place.signed("PUT", transfer_encoding="chunked"), body).status == 200
    assert place.get() == data


BROKEN_CHUNKS = {
    "no number": b"xyz\r\nabc\r\n0\r\n\r\n",
    "nothing": b"\r\nabc\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
    "with a prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "beyond 64 bits": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "beyond all memory": b"ffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "too small": b"2\r\nabc\r\n0\r\n\r\n",
    "too large": b"4\r\nabc\r\n0\r\n\r\n",
    "without an end of line": b"3\r\nabc0\r\n\r\n",
    "a long extension": b"3;" + b"x" * 100_000 + b"\r\nabc\r\n0\r\n\r\n",
    "a bare line feed": b"3\nabc\n0\n\n",
}


@pytest.mark.parametrize("body", BROKEN_CHUNKS.values(), ids=BROKEN_CHUNKS)
def test_broken_chunks_store_nothing(place, body: bytes):
    with Wire(place.endpoint, 10) as wire:
        wire.send(place.signed("PUT", transfer_encoding="chunked").head() + body)
        wire.socket.shutdown(socket.SHUT_WR)
        assert refused(wire.answer())
        assert wire.closed()
    assert place.get() is None


def test_the_hash_of_the_body_must_hold(place):
    request = place.signed("PUT", payload=sha256(b"other"), content_length="5")
    answer = ask(request, b"bytes")
    assert refused(answer) and answer.code == "XAmzContentSHA256Mismatch"
    assert place.get() is None


# ------------------------------------------------------------------------------------------------------- chunks of AWS


def crc32(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def aws_chunked(place, payload: str, parts: list[bytes], *, decoded: int | None = None, trailer: dict[str, str] | None = None,
                break_chunk: int = -1, break_trailer: bool = False, end: bytes = b"") -> Answer:
    """A PUT as AWS's SDKs send it; what is asked to be broken is."""
    size = sum(map(len, parts)) if decoded is None else decoded
    headers = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": str(size)}
    if trailer is not None:
        headers["x-amz-trailer"] = ",".join(trailer)
    request = place.request("PUT", headers={**headers, "transfer-encoding": "chunked"}, payload=payload).sign()
    is_signed = payload != UNSIGNED_CHUNKS_TRAILER
    body = b""
    for number, part in enumerate([*parts, b""]):
        extension = ""
        if is_signed:
            signature = request.signature.of_chunk(part)
            extension = ";chunk-signature=" + (signature if number != break_chunk else "0" * 64)
        body += chunk(part, extension) if part else f"0{extension}\r\n".encode()
    lines = "".join(f"{name}:{value}\n" for name, value in (trailer or {}).items())
    body += lines.replace("\n", "\r\n").encode()
    if is_signed and trailer is not None:
        signature = request.signature.of_trailer(lines)
        body += f"x-amz-trailer-signature:{signature if not break_trailer else '0' * 64}\r\n".encode()
    body += b"\r\n" + end
    with Wire(place.endpoint, 10) as wire:
        wire.send(request.head() + chunk(body) + b"0\r\n\r\n")
        return wire.answer()


PARTS = [b"a" * 8192, b"b" * 70_000, b"c" * 3]
DATA = b"".join(PARTS)
FORMS = {"unsigned, with a trailer": (UNSIGNED_CHUNKS_TRAILER, {"x-amz-checksum-crc32": crc32(DATA)}),
         "signed": (SIGNED_CHUNKS, None),
         "signed, with a trailer": (SIGNED_CHUNKS_TRAILER, {"x-amz-checksum-crc32": crc32(DATA)})}


@pytest.mark.parametrize("payload, trailer", FORMS.values(), ids=FORMS)
def test_chunks_of_aws_are_stored_without_their_framing(place, payload: str, trailer):
    answer = aws_chunked(place, payload, PARTS, trailer=trailer)
    assert answer.status == 200, answer.body
    assert place.get() == DATA
    assert place.s3.head_object(Bucket=place.path.split("/")[1], Key="k").get("ContentEncoding") is None


def test_a_wrong_signature_of_any_chunk_stores_nothing(place):
    for number in range(len(PARTS) + 1):
        assert refused(aws_chunked(place, SIGNED_CHUNKS, PARTS, break_chunk=number), 403), number
        assert place.get() is None


def test_a_wrong_signature_of_the_trailer_stores_nothing(place):
    trailer = {"x-amz-checksum-crc32": crc32(DATA)}
    assert refused(aws_chunked(place, SIGNED_CHUNKS_TRAILER, PARTS, trailer=trailer, break_trailer=True), 403)
    assert place.get() is None


@pytest.mark.parametrize("value", [crc32(b"other"), "short", "", "!!!!!!=="])
def test_a_wrong_trailer_stores_nothing(place, value: str):
    for payload in (UNSIGNED_CHUNKS_TRAILER, SIGNED_CHUNKS_TRAILER):
        assert refused(aws_chunked(place, payload, PARTS, trailer={"x-amz-checksum-crc32": value}))
        assert place.get() is None


def test_a_trailer_that_was_announced_must_come(place):
    with Wire(place.endpoint, 10) as wire:
        request = place.request("PUT", payload=UNSIGNED_CHUNKS_TRAILER, headers={
            "content-encoding": "aws-chunked", "x-amz-decoded-content-length": "5", "x-amz-trailer": "x-amz-checksum-crc32",
            "content-length": str(len(b"5\r\nbytes\r\n0\r\n\r\n"))}).sign()
        assert refused(wire.ask(request, b"5\r\nbytes\r\n0\r\n\r\n"))
    assert place.get() is None


@pytest.mark.parametrize("decoded", [0, len(DATA) - 1, len(DATA) + 1, 1 << 40])
def test_the_decoded_length_must_be_true(place, decoded: int):
    trailer = {"x-amz-checksum-crc32": crc32(DATA)}
    assert refused(aws_chunked(place, UNSIGNED_CHUNKS_TRAILER, PARTS, trailer=trailer, decoded=decoded))
    assert place.get() is None


def test_nothing_may_follow_the_last_chunk(place):
    trailer = {"x-amz-checksum-crc32": crc32(DATA)}
    assert refused(aws_chunked(place, UNSIGNED_CHUNKS_TRAILER, PARTS, trailer=trailer, end=b"more"))
    assert place.get() is None


# ------------------------------------------------------------------------------------------------------------- ranges

SIZE = 1000
RANGES = {
    "bytes=0-0": (206, 0, 0), "bytes=0-": (206, 0, 999), "bytes=999-": (206, 999, 999), "bytes=10-19": (206, 10, 19),
    "bytes=-1": (206, 999, 999), "bytes=-1000": (206, 0, 999), "bytes=-5000": (206, 0, 999), "bytes=990-5000": (206, 990, 999),
    "bytes=0-18446744073709551615": (206, 0, 999), "bytes=0-99999999999999999999999": (206, 0, 999),
    "bytes=1000-": (416,), "bytes=1000-1000": (416,), "bytes=18446744073709551615-": (416,),
    "bytes=99999999999999999999999-": (416,), "bytes=-0": (416,),
    # What can't be understood is as if it were not there.
    "bytes=": (200,), "bytes=-": (200,), "bytes=5-2": (200,), "bytes=a-b": (200,), "bytes=1": (200,), "bytes=--1": (200,),
    "bytes= 1-2x": (200,), "octets=0-1": (200,), "0-1": (200,), "bytes=0x0-0x1": (200,), "bytes=-1-2": (200,),
    "bytes=" + "9" * 4000: (200,),
}


@pytest.mark.parametrize("text", RANGES)
def test_a_range_is_read_as_s3_reads_it(place, text: str):
    data = bytes(i % 251 for i in range(SIZE))
    place.put(data)
    status, *ends = RANGES[text]
    with Wire(place.endpoint) as wire:
        answer = wire.ask(place.signed("GET", range=text))
        assert answer.status == status, answer
        if status == 206:
            assert answer.headers["content-range"] == f"bytes {ends[0]}-{ends[1]}/{SIZE}"
            assert answer.body == data[ends[0]:ends[1] + 1]
        elif status == 416:
            assert answer.headers["content-range"] == f"bytes */{SIZE}" and answer.code == "InvalidRange"
        else:
            assert answer.body == data
        told = wire.ask(place.signed("HEAD", range=text))
        assert told.status == status
        if status != 416:
            assert told.headers["content-length"] == answer.headers["content-length"]


def test_a_range_of_nothing_can_not_be_satisfied(place):
    place.put(b"")
    for text in ("bytes=0-0", "bytes=0-", "bytes=-1"):
        answer = ask(place.signed("GET", range=text))
        assert answer.status == 416 and b"<ActualObjectSize>0<" in answer.body, text


# --------------------------------------------------------------------------------------------------------- signatures


def test_a_signature_has_its_time(place):
    now = datetime.datetime.now(datetime.timezone.utc)
    for minutes, status in ((-20, 403), (-10, 404), (10, 404), (20, 403)):
        answer = ask(place.request("GET").sign(now + datetime.timedelta(minutes=minutes)))
        assert answer.status == status, (minutes, answer)
        assert status == 404 or answer.code == "RequestTimeTooSkewed"


def test_what_is_signed_may_not_be_changed(place):
    place.put(b"bytes")

    def changed(**attributes) -> Answer:
        request = place.signed("GET", range="bytes=0-1", x_amz_meta_a="b")
        for name, value in attributes.items():
            setattr(request, name, value(getattr(request, name)))
        return ask(request)

    assert changed().status == 206
    for attributes in ({"method": lambda _: "DELETE"}, {"path": lambda path: path + "2"}, {"query": lambda _: {"acl": ""}},
                       {"headers": lambda headers: {**headers, "range": "bytes=0-2"}},
                       {"headers": lambda headers: {**headers, "x-amz-meta-a": "c"}},
                       {"headers": lambda headers: {**headers, "x-amz-acl": "public-read"}},
                       {"headers": lambda headers: {name: value for name, value in headers.items() if name != "range"}}):
        answer = changed(**attributes)
        assert answer.status == 403 and answer.code in ("SignatureDoesNotMatch", "AccessDenied"), answer
    assert place.get() == b"bytes"


def test_nobody_may_do_anything_without_a_key(place):
    place.put(b"bytes")
    for method, query in (("GET", {}), ("HEAD", {}), ("PUT", {}), ("DELETE", {}), ("POST", {"uploads": ""}), ("GET", {"acl": ""})):
        request = place.request(method, query=query, headers={"host": "x", "content-length": "0"})
        assert ask(request).status == 403, method
    assert place.get() == b"bytes"


# ---------------------------------------------------------------------------------------------------------------- TLS


def test_plain_text_on_the_port_of_tls_is_closed(serve_tls):
    with socket.create_connection((serve_tls.endpoint.host, serve_tls.endpoint.port), 10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while plain.recv(1000):
                pass
    assert serve_tls.endpoint.get("/-/healthy") == (200, b"ok\n")


def test_a_connection_is_kept_over_errors(either, bucket_name: str):
    """A client that asks for what is not there a hundred times needs one connection."""
    either.boto3().create_bucket(Bucket=bucket_name)
    with Wire(either.endpoint) as wire:
        for _ in range(100):
            answer = wire.ask(Request(either.endpoint, "GET", f"/{bucket_name}/missing").sign())
            assert answer.status == 404 and answer.headers["connection"] == "keep-alive"
            assert wire.ask(Request(either.endpoint, "HEAD", f"/{bucket_name}/missing").sign()).status == 404
