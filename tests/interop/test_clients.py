# SPDX-License-Identifier: Apache-2.0
"""What every S3 client may expect of `kvern serve`."""
from __future__ import annotations

from pathlib import Path

import pytest
from clients import LONG, QUICK, Awscli, Boto3OverTls, Client, Command, Missing
from servers import MIB

ALL = [*QUICK, *(pytest.param(one, marks=pytest.mark.long) for one in LONG)]
# Starting the command takes a second.
FEW = [pytest.param(one, marks=pytest.mark.long) if one is Awscli else one for one in ALL]
SIZES = {"nothing": 0, "one byte": 1, "64 KiB": 64 << 10, "parts": 17 * MIB + 5}
KEYS = sorted(f"{'ab'[i % 2]}/{i:04}" for i in range(1205))  # more than a page of a thousand
ODD_KEYS = ["plain", "folder/of/things", "a space and a + plus", "percent %41 100%", "ümläut/日本語", "quotes'and\"double",
            "semi;colon,comma=equal&and", "tilde~(brackets)[square]{curly}", "dots/../up", "a//b", "hash#question?"]


def of(kinds: list, without: str = "") -> list:
    """Those that can do it."""
    return [kind for kind in kinds if without not in getattr(kind, "values", [kind])[0].cannot]


@pytest.fixture
def client(request, serve, serve_tls, bucket_name, tmp_path: Path) -> Client:
    server = serve_tls if request.param.tls else serve
    server.boto3().create_bucket(Bucket=bucket_name)
    return request.param(server.endpoint, bucket_name, tmp_path)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("client", ALL, indirect=True)
def test_bytes_come_back_as_they_were(client: Client, bytes_of, size: int):
    data = bytes_of(size)
    client.put("folder/value", data)
    assert client.get("folder/value") == data


@pytest.mark.parametrize("client", FEW, indirect=True)
def test_a_value_is_replaced_as_a_whole(client: Client, bytes_of):
    for size in (9 * MIB, 100, 0, 70000):
        data = bytes_of(size)
        client.put("value", data)
        assert client.get("value") == data


@pytest.mark.parametrize("client", ALL, indirect=True)
def test_what_is_not_there_is_missing(client: Client):
    with pytest.raises(Missing):
        client.get("never/stored")


@pytest.mark.parametrize("client", FEW, indirect=True)
def test_what_is_deleted_is_missing(client: Client):
    client.put("value", b"bytes")
    client.put("value/below", b"more bytes")
    client.delete("value")
    with pytest.raises(Missing):
        client.get("value")
    assert client.get("value/below") == b"more bytes"


@pytest.mark.parametrize("client", of(ALL, "ranges"), indirect=True)
def test_any_part_of_a_value_can_be_read(client: Client, bytes_of):
    data = bytes_of(9 * MIB + 3)
    client.put("value", data)
    for first, last in ((0, 0), (0, 99), (262143, 262144), (4 * MIB - 1, 8 * MIB), (len(data) - 1, len(data) - 1)):
        assert client.range("value", first, last) == data[first:last + 1], (first, last)


@pytest.fixture(scope="session")
def bucket_of_keys(serve) -> str:
    s3 = serve.boto3()
    s3.create_bucket(Bucket="many-keys")
    for key in KEYS:
        s3.put_object(Bucket="many-keys", Key=key, Body=b"")
    return "many-keys"


@pytest.mark.parametrize("kind", [kind for kind in of(ALL, "lists") if kind is not Boto3OverTls])
def test_a_list_has_every_key_once_and_in_order(kind, serve, bucket_of_keys: str, tmp_path: Path):
    client = kind(serve.endpoint, bucket_of_keys, tmp_path)
    assert client.keys() == KEYS
    assert client.keys("b/") == [key for key in KEYS if key.startswith("b/")]


def odd_keys_for(client: Client) -> list[str]:
    """Without what a client's own path rules change before it asks anybody."""
    rules = {"Obstore": lambda key: ".." in key or "//" in key, "S3fs": lambda key: "//" in key or "?" in key,
             "Rclone": lambda key: ".." in key or "//" in key, "S3cmd": lambda key: "?" in key}
    avoided = rules.get(type(client).__name__, lambda key: False)
    keys = [key for key in ODD_KEYS if not avoided(key)]
    # A command takes a second to start: it gets all characters in two keys.
    return ["".join(keys[:6]), "".join(keys[6:])] if isinstance(client, Command) else keys


@pytest.mark.parametrize("client", ALL, indirect=True)
def test_keys_may_hold_any_character(client: Client, bytes_of):
    values = {key: bytes_of(50) for key in odd_keys_for(client)}
    for key, data in values.items():
        client.put(key, data)
    assert {key: client.get(key) for key in values} == values
    if "lists" not in client.cannot:
        assert sorted(client.keys()) == sorted(values)
    # What others see is under the same names.
    s3 = client.endpoint.boto3()
    for key, data in values.items():
        assert s3.get_object(Bucket=client.bucket, Key=key)["Body"].read() == data, key
