# SPDX-License-Identifier: Apache-2.0
"""boto3 in depth: checksums in headers and trailers, conditions, parts, copies, presigned URLs, rights, virtual hosts."""
from __future__ import annotations

import base64
import hashlib
import json
import threading
import urllib.error
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from servers import ACCESS, MIB, SECRET, KvernServe

ALGORITHMS = ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]


def refusal(call, **arguments) -> tuple[str, int]:
    """S3's code and the status with which a call is refused."""
    with pytest.raises(ClientError) as found:
        call(**arguments)
    return found.value.response["Error"]["Code"], found.value.response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.fixture(params=["http", "tls"])
def either(request, serve, serve_tls) -> KvernServe:
    """Over plain HTTP boto3 sends checksums as headers, over TLS as trailers of a chunked body."""
    return serve if request.param == "http" else serve_tls


@pytest.fixture
def place(either: KvernServe, bucket_name: str):
    s3 = either.boto3()
    s3.create_bucket(Bucket=bucket_name)
    return s3, bucket_name


# ----------------------------------------------------------------------------------------------------------- checksums


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_checksum_is_verified_kept_and_told(place, bytes_of, algorithm: str):
    s3, bucket = place
    data, field = bytes_of(200_001), f"Checksum{algorithm}"
    stored = s3.put_object(Bucket=bucket, Key="k", Body=data, ChecksumAlgorithm=algorithm)
    got = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert got["Body"].read() == data and got[field] == stored[field]  # boto3 compares it with what it read, too
    assert got["ChecksumType"] == "FULL_OBJECT"
    told = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["Checksum", "ObjectSize", "ETag"])
    assert told["Checksum"][field] == stored[field] and told["ObjectSize"] == len(data)
    assert f'"{told["ETag"]}"' == stored["ETag"]


def test_a_checksum_is_that_of_the_bytes(place, bytes_of):
    s3, bucket = place
    data = bytes_of(100_000)
    stored = s3.put_object(Bucket=bucket, Key="k", Body=data, ChecksumAlgorithm="CRC32")
    assert stored["ChecksumCRC32"] == base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    stored = s3.put_object(Bucket=bucket, Key="k", Body=data, ChecksumAlgorithm="SHA256")
    assert stored["ChecksumSHA256"] == base64.b64encode(hashlib.sha256(data).digest()).decode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_wrong_checksum_stores_nothing(place, bytes_of, algorithm: str):
    s3, bucket = place
    other = s3.put_object(Bucket=bucket, Key="other", Body=b"other", ChecksumAlgorithm=algorithm)[f"Checksum{algorithm}"]
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=bytes_of(70_000), **{f"Checksum{algorithm}": other}) == \
        ("BadDigest", 400)
    assert refusal(s3.head_object, Bucket=bucket, Key="k") == ("404", 404)


def test_a_wrong_md5_stores_nothing(place):
    s3, bucket = place
    other = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"bytes", ContentMD5=other) == ("BadDigest", 400)
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"bytes", ContentMD5="short") == ("InvalidDigest", 400)
    assert refusal(s3.head_object, Bucket=bucket, Key="k") == ("404", 404)


def parts_of(data: bytes, size: int) -> list[bytes]:
    return [data[at:at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("algorithm, kind", [*((algorithm, "COMPOSITE") for algorithm in ALGORITHMS if algorithm != "CRC64NVME"),
                                             *((algorithm, "FULL_OBJECT") for algorithm in ALGORITHMS if "CRC" in algorithm)])
def test_parts_have_checksums_and_so_has_the_whole(place, bytes_of, algorithm: str, kind: str):
    s3, bucket = place
    data, field = bytes_of(12 * MIB), f"Checksum{algorithm}"
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm=algorithm, ChecksumType=kind)["UploadId"]
    done = []
    for number, part in enumerate(parts_of(data, 5 * MIB), 1):
        told = s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=number, Body=part, ChecksumAlgorithm=algorithm)
        done.append({"PartNumber": number, "ETag": told["ETag"], field: told[field]})
    whole = s3.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload={"Parts": done})
    assert whole["ChecksumType"] == kind
    if kind == "FULL_OBJECT":
        alone = s3.put_object(Bucket=bucket, Key="alone", Body=data, ChecksumAlgorithm=algorithm)
        assert whole[field] == alone[field]
    else:
        assert whole[field].endswith("-3")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == data
    for number, part in enumerate(parts_of(data, 5 * MIB), 1):
        got = s3.get_object(Bucket=bucket, Key="k", PartNumber=number, ChecksumMode="ENABLED")
        assert got["Body"].read() == part and got[field] == done[number - 1][field] and got["PartsCount"] == 3


def test_parts_with_a_checksum_of_their_own_are_taken(place, bytes_of):
    """The upload named no algorithm: the parts' checksums say nothing of the whole, and are not told as if they did."""
    s3, bucket = place
    data = bytes_of(6 * MIB)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    done = [{"PartNumber": number, "ETag": s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=number, Body=part,
                                                          ChecksumAlgorithm="SHA1")["ETag"]}
            for number, part in enumerate(parts_of(data, 5 * MIB), 1)]
    s3.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload={"Parts": done})
    assert s3.get_object(Bucket=bucket, Key="k", PartNumber=2, ChecksumMode="ENABLED")["Body"].read() == data[5 * MIB:]
    assert s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")["Body"].read() == data


# ---------------------------------------------------------------------------------------------------------- conditions


def test_a_condition_holds_for_reading(place):
    s3, bucket = place
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"bytes")["ETag"]
    assert s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)["Body"].read() == b"bytes"
    assert refusal(s3.get_object, Bucket=bucket, Key="k", IfMatch='"other"') == ("PreconditionFailed", 412)
    assert refusal(s3.get_object, Bucket=bucket, Key="k", IfNoneMatch=etag) == ("304", 304)


def test_a_condition_holds_for_writing(place):
    s3, bucket = place
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"0", IfMatch='"any"') == ("NoSuchKey", 404)
    first = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*") == ("PreconditionFailed", 412)
    s3.put_object(Bucket=bucket, Key="k", Body=b"3", IfMatch=first)
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"4", IfMatch=first) == ("PreconditionFailed", 412)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"3"


def race(contenders: int, attempt) -> list[str]:
    """All at once; 'ok' or the code of the refusal of each."""
    gate = threading.Barrier(contenders)

    def one(number: int) -> str:
        gate.wait()
        try:
            attempt(number)
            return "ok"
        except ClientError as error:
            return error.response["Error"]["Code"]

    with ThreadPoolExecutor(contenders) as pool:
        return list(pool.map(one, range(contenders)))


@pytest.mark.parametrize("size", [100, 3 * MIB])
def test_of_racing_creators_exactly_one_wins(serve, bucket: str, bytes_of, size: int):
    contenders = 8
    clients = [serve.boto3() for _ in range(contenders)]
    values = [bytes_of(size) for _ in range(contenders)]
    for round_ in range(12):
        key = f"k{round_}"
        said = race(contenders, lambda i: clients[i].put_object(Bucket=bucket, Key=key, Body=values[i], IfNoneMatch="*"))
        assert said.count("ok") == 1 and set(said) <= {"ok", "PreconditionFailed", "ConditionalRequestConflict"}, said
        assert clients[0].get_object(Bucket=bucket, Key=key)["Body"].read() == values[said.index("ok")]


def test_of_racing_replacers_exactly_one_wins(serve, bucket: str):
    contenders = 8
    clients = [serve.boto3() for _ in range(contenders)]
    etag = clients[0].put_object(Bucket=bucket, Key="k", Body=b"first")["ETag"]
    for round_ in range(12):
        said = race(contenders, lambda i: clients[i].put_object(Bucket=bucket, Key="k", IfMatch=etag,
                                                                Body=b"by %d in round %d" % (i, round_)))
        assert said.count("ok") == 1 and set(said) <= {"ok", "PreconditionFailed", "ConditionalRequestConflict"}, said
        got = clients[0].get_object(Bucket=bucket, Key="k")
        assert got["Body"].read() == b"by %d in round %d" % (said.index("ok"), round_)
        etag = got["ETag"]


def test_of_racing_completions_exactly_one_creates(serve, bucket: str):
    contenders = 4
    clients = [serve.boto3() for _ in range(contenders)]
    uploads = []
    for i in range(contenders):
        upload = clients[i].create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
        etag = clients[i].upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"by %d" % i)["ETag"]
        uploads.append({"UploadId": upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}})
    said = race(contenders, lambda i: clients[i].complete_multipart_upload(Bucket=bucket, Key="k", IfNoneMatch="*", **uploads[i]))
    assert said.count("ok") == 1 and set(said) <= {"ok", "PreconditionFailed", "ConditionalRequestConflict"}, said
    assert clients[0].get_object(Bucket=bucket, Key="k")["Body"].read() == b"by %d" % said.index("ok")


# ----------------------------------------------------------------------------------------------------------- the others


def test_metadata_comes_back(place):
    s3, bucket = place
    given = {"ContentType": "application/x-kv", "CacheControl": "no-store", "ContentEncoding": "zstd",
             "ContentDisposition": 'attachment; filename="a b"', "ContentLanguage": "de",
             "Metadata": {"model": "llama 3", "empty": "", "long": "x" * 1000}}
    s3.put_object(Bucket=bucket, Key="k", Body=b"bytes", **given)
    for told in (s3.head_object(Bucket=bucket, Key="k"), s3.get_object(Bucket=bucket, Key="k")):
        assert {name: told[name] for name in given} == given
    assert refusal(s3.put_object, Bucket=bucket, Key="k2", Body=b"", Metadata={"long": "x" * 2100}) == ("MetadataTooLarge", 400)


def test_a_copy_has_the_bytes_and_the_metadata(place, bytes_of):
    s3, bucket = place
    data = bytes_of(11 * MIB)
    s3.put_object(Bucket=bucket, Key="a b/+%", Body=data, Metadata={"m": "1"})
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "a b/+%"})
    got = s3.get_object(Bucket=bucket, Key="copy")
    assert got["Body"].read() == data and got["Metadata"] == {"m": "1"}


def test_an_aborted_upload_leaves_nothing(place):
    s3, bucket = place
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"x" * 100_000)
    assert [one["UploadId"] for one in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == [upload]
    assert [one["Size"] for one in s3.list_parts(Bucket=bucket, Key="k", UploadId=upload)["Parts"]] == [100_000]
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=upload)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket) and "Contents" not in s3.list_objects_v2(Bucket=bucket)
    assert refusal(s3.list_parts, Bucket=bucket, Key="k", UploadId=upload) == ("NoSuchUpload", 404)
    s3.delete_bucket(Bucket=bucket)


def test_a_completion_may_be_asked_for_again(place):
    """Its answer may have been lost."""
    s3, bucket = place
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    etag = s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"part")["ETag"]
    completion = {"Bucket": bucket, "Key": "k", "UploadId": upload, "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}}
    first = s3.complete_multipart_upload(**completion)
    assert s3.complete_multipart_upload(**completion)["ETag"] == first["ETag"]


def test_many_are_deleted_at_once(place):
    s3, bucket = place
    keys = [f"k {i} <&>" for i in range(300)]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    told = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in [*keys[:290], "never there"]]})
    assert len(told["Deleted"]) == 291 and "Errors" not in told
    assert [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]] == sorted(keys[290:])


def test_a_presigned_url_does_what_it_says_and_nothing_else(serve, bucket: str):
    s3 = serve.boto3(signature_version="s3v4")  # it signs URLs for foreign servers in the old way otherwise
    place = {"Bucket": bucket, "Key": "a key/ü"}
    put, get = (s3.generate_presigned_url(what, Params=place, ExpiresIn=60) for what in ("put_object", "get_object"))
    urllib.request.urlopen(urllib.request.Request(put, data=b"bytes", method="PUT"))
    assert urllib.request.urlopen(get).read() == b"bytes"
    changed = get.replace("a%20key", "another%20key")
    for url, method in ((get, "PUT"), (get, "DELETE"), (put, "GET"), (changed, "GET"), (get + "0", "GET")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, method=method))
        assert refused.value.code == 403, (url, method)


def test_a_bucket_may_be_a_host(serve, bucket: str, monkeypatch):
    import socket

    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: resolve(
        "127.0.0.1" if str(host).endswith("s3.test") else host, *rest, **more))
    serve_as_host = serve.endpoint.__class__("s3.test", serve.endpoint.port)
    s3 = serve_as_host.boto3(s3={"addressing_style": "virtual"})
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"bytes")
    assert s3.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"bytes"
    assert serve.boto3().get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"bytes"
    assert [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["a/b"]


def test_a_key_may_only_do_what_it_is_for(own_serve, tmp_path: Path):
    keys = tmp_path / "keys.toml"
    keys.write_text(f"""
[[key]]
access = "{ACCESS}"
secret = "{SECRET}"
[[key]]
access = "reader"
secret = "reader's"
rights = "read"
buckets = ["kv-cache"]
[[key]]
access = "team"
secret = "team's"
buckets = ["kv-cache", "other-*"]
prefix = "team-a/"
""")
    keys.chmod(0o600)
    server = own_serve("--keys", str(keys))
    owner = server.boto3()
    for bucket in ("kv-cache", "secret"):
        owner.create_bucket(Bucket=bucket)
        owner.put_object(Bucket=bucket, Key="team-a/k", Body=b"bytes")
        owner.put_object(Bucket=bucket, Key="k", Body=b"bytes")

    def client(access: str, secret: str):
        endpoint = server.endpoint.__class__("127.0.0.1", server.endpoint.port, access=access, secret=secret)
        return endpoint.boto3()

    denied = ("AccessDenied", 403)
    reader = client("reader", "reader's")
    assert reader.get_object(Bucket="kv-cache", Key="k")["Body"].read() == b"bytes"
    assert refusal(reader.put_object, Bucket="kv-cache", Key="k", Body=b"") == denied
    assert refusal(reader.delete_object, Bucket="kv-cache", Key="k") == denied
    assert refusal(reader.get_object, Bucket="secret", Key="k") == denied
    assert refusal(reader.create_bucket, Bucket="kv-other") == denied
    assert [one["Name"] for one in reader.list_buckets()["Buckets"]] == ["kv-cache"]
    team = client("team", "team's")
    team.put_object(Bucket="kv-cache", Key="team-a/new", Body=b"")
    assert refusal(team.put_object, Bucket="kv-cache", Key="team-b/new", Body=b"") == denied
    assert refusal(team.get_object, Bucket="kv-cache", Key="k") == denied
    assert refusal(team.list_objects_v2, Bucket="kv-cache") == denied
    assert len(team.list_objects_v2(Bucket="kv-cache", Prefix="team-a/")["Contents"]) == 2
    told = team.delete_objects(Bucket="kv-cache", Delete={"Objects": [{"Key": "k"}, {"Key": "team-a/new"}]})
    assert [one["Key"] for one in told["Deleted"]] == ["team-a/new"] and [one["Key"] for one in told["Errors"]] == ["k"]
    assert refusal(team.copy_object, Bucket="kv-cache", Key="team-a/stolen", CopySource="kv-cache/k") == denied
    assert refusal(client("reader", "wrong").list_buckets) == ("SignatureDoesNotMatch", 403)
    assert refusal(client("nobody", "wrong").list_buckets) == ("InvalidAccessKeyId", 403)


def test_a_quota_is_kept_and_told(own_serve, bytes_of):
    server = own_serve("--quota", "small=1MiB")
    s3 = server.boto3()
    s3.create_bucket(Bucket="small")
    s3.put_object(Bucket="small", Key="a", Body=bytes_of(700_000))
    code, status = refusal(s3.put_object, Bucket="small", Key="b", Body=bytes_of(700_000))
    assert status in (403, 507), (code, status)
    assert len(s3.get_object(Bucket="small", Key="a")["Body"].read()) == 700_000
    s3.delete_object(Bucket="small", Key="a")
    s3.put_object(Bucket="small", Key="b", Body=bytes_of(700_000))


def test_operations_pages_answer(serve):
    assert serve.endpoint.get("/-/healthy") == (200, b"ok\n")
    assert serve.endpoint.get("/-/ready") == (200, b"ready\n")
    status, text = serve.endpoint.get("/-/metrics")
    assert status == 200 and b"kvern_server_requests_total{" in text
    assert "requests" in json.loads(serve.endpoint.get("/-/stats")[1])
