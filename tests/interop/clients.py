# SPDX-License-Identifier: Apache-2.0
"""Real S3 clients behind one small interface, so that the same expectations hold for all of them.

A client that can't do something says so in `cannot`; its tests are then not made for it, and nothing is skipped.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import botocore.exceptions
from servers import MIB, REGION, ROOT, Endpoint, tool

COMMAND_S = 120


class Missing(Exception):
    """The client said that there is no such key."""


class Client(ABC):
    """One client, one endpoint, one bucket, which `make_bucket` or the test makes."""

    cannot: frozenset[str] = frozenset()  # of "ranges", "odd keys", "metadata"
    tls = False

    def __init__(self, endpoint: Endpoint, bucket: str, folder: Path):
        self.endpoint, self.bucket, self.folder = endpoint, bucket, folder

    @abstractmethod
    def put(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Raises Missing."""

    @abstractmethod
    def keys(self, prefix: str = "") -> list[str]:
        """All of them, however many pages that takes."""

    @abstractmethod
    def delete(self, key: str) -> None: ...

    def range(self, key: str, first: int, last: int) -> bytes:
        raise NotImplementedError


class Boto3(Client):
    def __init__(self, *given):
        super().__init__(*given)
        self.s3 = self.endpoint.boto3()

    def put(self, key: str, data: bytes) -> None:
        # Large ones in parts, as its own transfer manager does it.
        import io
        self.s3.upload_fileobj(io.BytesIO(data), self.bucket, key)

    def get(self, key: str) -> bytes:
        try:
            return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            raise Missing from None

    def range(self, key: str, first: int, last: int) -> bytes:
        return self.s3.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={first}-{last}")["Body"].read()

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def delete(self, key: str) -> None:
        self.s3.delete_object(Bucket=self.bucket, Key=key)


class Boto3OverTls(Boto3):
    """Over TLS it sends checksums as trailers of chunked bodies."""

    tls = True


class Awscrt(Client):
    """AWS's common runtime in C: parallel parts both ways. It has no lists, and deletes by a plain request."""

    cannot = frozenset({"lists"})

    def __init__(self, *given):
        super().__init__(*given)
        from awscrt import auth, io, s3

        group = io.EventLoopGroup(2)
        bootstrap = io.ClientBootstrap(group, io.DefaultHostResolver(group))
        provider = auth.AwsCredentialsProvider.new_static(self.endpoint.access, self.endpoint.secret)
        signing = s3.create_default_s3_signing_config(region=REGION, credential_provider=provider)
        self.client = s3.S3Client(bootstrap=bootstrap, region=REGION, signing_config=signing, part_size=5 * MIB,
                                  multipart_upload_threshold=8 * MIB, tls_mode=s3.S3RequestTlsMode.DISABLED)

    def request(self, kind: str, method: str, key: str, data: bytes | None = None, headers: Iterable = ()):
        import io
        from urllib.parse import quote

        from awscrt import http, s3

        pieces: list[tuple[int, bytes]] = []
        lock = threading.Lock()

        def on_body(chunk, offset, **_):
            with lock:
                pieces.append((offset, bytes(chunk)))

        every = [("Host", self.endpoint.address), *headers]
        if data is not None:
            every.append(("Content-Length", str(len(data))))
        request = http.HttpRequest(method, f"/{self.bucket}/{quote(key)}", http.HttpHeaders(every),
                                   io.BytesIO(data) if data is not None else None)
        made = self.client.make_request(request=request, type=getattr(s3.S3RequestType, kind), on_body=on_body,
                                        operation_name="DeleteObject" if kind == "DEFAULT" else None)
        try:
            made.finished_future.result(COMMAND_S)
        except s3.S3ResponseError as error:
            if error.status_code == 404:
                raise Missing from None
            raise
        return b"".join(piece for _, piece in sorted(pieces))

    def put(self, key: str, data: bytes) -> None:
        self.request("PUT_OBJECT", "PUT", key, data)

    def get(self, key: str) -> bytes:
        return self.request("GET_OBJECT", "GET", key)

    def range(self, key: str, first: int, last: int) -> bytes:
        return self.request("GET_OBJECT", "GET", key, headers=[("Range", f"bytes={first}-{last}")])

    def keys(self, prefix: str = "") -> list[str]:
        raise NotImplementedError

    def delete(self, key: str) -> None:
        self.request("DEFAULT", "DELETE", key)


class Obstore(Client):
    """Rust's object_store."""

    def __init__(self, *given):
        super().__init__(*given)
        from obstore.store import S3Store

        self.store = S3Store(self.bucket, endpoint=self.endpoint.url, region=REGION, access_key_id=self.endpoint.access,
                             secret_access_key=self.endpoint.secret, virtual_hosted_style_request=False,
                             client_options={"allow_http": True}, retry_config={"max_retries": 0})

    def put(self, key: str, data: bytes) -> None:
        import obstore

        obstore.put(self.store, key, data)

    def get(self, key: str) -> bytes:
        import obstore

        try:
            return bytes(obstore.get(self.store, key).bytes())
        except FileNotFoundError:
            raise Missing from None

    def range(self, key: str, first: int, last: int) -> bytes:
        import obstore

        return bytes(obstore.get_range(self.store, key, start=first, end=last + 1))

    def keys(self, prefix: str = "") -> list[str]:
        import obstore

        # Its prefixes are whole folders: one within a name is for us to apply.
        return [meta["path"] for page in obstore.list(self.store) for meta in page if meta["path"].startswith(prefix)]

    def delete(self, key: str) -> None:
        import obstore

        obstore.delete(self.store, key)


# ----------------------------------------------------------------------------------------------------------- commands


class Command(Client):
    """A program that moves files."""

    cannot = frozenset({"ranges"})

    def run(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess:
        done = subprocess.run([str(part) for part in (*self.program(), *arguments)], capture_output=True, text=True,
                              timeout=COMMAND_S, stdin=subprocess.DEVNULL, env=self.environment(), cwd=self.folder)
        assert not check or done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
        return done

    def program(self) -> list[str | Path]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8", **self.endpoint.env()}

    def put(self, key: str, data: bytes) -> None:
        path = self.folder / "put"
        path.write_bytes(data)
        self.put_file(path, key)

    def get(self, key: str) -> bytes:
        path = self.folder / "got"
        path.unlink(missing_ok=True)
        done = self.get_file(key, path)
        if done.returncode:
            said = (done.stdout + done.stderr).lower()
            if any(word in said for word in ("404", "not found", "does not exist", "notfound")):
                raise Missing
            raise AssertionError(f"{done.args}\n{done.stdout}\n{done.stderr}")
        return path.read_bytes()

    def put_file(self, path: Path, key: str) -> None:
        raise NotImplementedError

    def get_file(self, key: str, path: Path) -> subprocess.CompletedProcess:
        raise NotImplementedError


class Awscli(Command):
    """The current one."""

    def program(self) -> list[str | Path]:
        return [tool("aws"), "--endpoint-url", self.endpoint.url]

    def put_file(self, path: Path, key: str) -> None:
        self.run("s3", "cp", path, f"s3://{self.bucket}/{key}")

    def get_file(self, key: str, path: Path) -> subprocess.CompletedProcess:
        return self.run("s3", "cp", f"s3://{self.bucket}/{key}", path, check=False)

    def keys(self, prefix: str = "") -> list[str]:
        done = self.run("s3api", "list-objects-v2", "--bucket", self.bucket, "--prefix", prefix, "--output", "json")
        return [entry["Key"] for entry in json.loads(done.stdout or "{}").get("Contents", [])]

    def delete(self, key: str) -> None:
        self.run("s3", "rm", f"s3://{self.bucket}/{key}")


class AwscliOfDebian(Awscli):
    """Version 2.9, before checksums were the default."""

    def program(self) -> list[str | Path]:
        return ["/usr/bin/aws", "--endpoint-url", self.endpoint.url]


class S3cmd(Command):
    def program(self) -> list[str | Path]:
        return ["/usr/bin/s3cmd", "--config=/dev/null", f"--access_key={self.endpoint.access}",
                f"--secret_key={self.endpoint.secret}", f"--host={self.endpoint.address}", "--no-ssl", "--no-progress",
                f"--host-bucket={self.endpoint.address}", "--multipart-chunk-size-mb=5"]

    def put_file(self, path: Path, key: str) -> None:
        self.run("put", path, f"s3://{self.bucket}/{key}")

    def get_file(self, key: str, path: Path) -> subprocess.CompletedProcess:
        return self.run("get", "--force", f"s3://{self.bucket}/{key}", path, check=False)

    def keys(self, prefix: str = "") -> list[str]:
        lines = self.run("ls", "--recursive", f"s3://{self.bucket}/{prefix}").stdout.splitlines()
        start = f"s3://{self.bucket}/"
        return [line[line.index(start) + len(start):] for line in lines]

    def delete(self, key: str) -> None:
        self.run("rm", f"s3://{self.bucket}/{key}")


class Rclone(Command):
    def program(self) -> list[str | Path]:
        return ["/usr/bin/rclone", "--config", "/dev/null", "--retries", "1", "--low-level-retries", "1"]

    def remote(self, key: str = "") -> str:
        quoted = {name: '"' + value.replace('"', '""') + '"' for name, value in
                  (("access_key_id", self.endpoint.access), ("secret_access_key", self.endpoint.secret),
                   ("endpoint", self.endpoint.url), ("region", REGION))}
        options = ",".join(f"{name}={value}" for name, value in quoted.items())
        return f":s3,provider=Other,chunk_size=5Mi,upload_cutoff=8Mi,{options}:{self.bucket}/{key}"

    def put_file(self, path: Path, key: str) -> None:
        self.run("copyto", path, self.remote(key))

    def get_file(self, key: str, path: Path) -> subprocess.CompletedProcess:
        done = self.run("copyto", self.remote(key), path, check=False)
        if done.returncode == 0 and not path.is_file():  # what is no object is a folder to it, and an empty one is there
            shutil.rmtree(path, ignore_errors=True)
            raise Missing
        return done

    def keys(self, prefix: str = "") -> list[str]:
        names = self.run("lsf", "--recursive", "--files-only", self.remote()).stdout.splitlines()
        return [name for name in names if name.startswith(prefix)]

    def delete(self, key: str) -> None:
        self.run("deletefile", self.remote(key))


class S3fs(Command):
    """fsspec's s3fs, in an environment of its own: it needs another botocore than boto3."""

    cannot = frozenset()

    def program(self) -> list[str | Path]:
        python = ROOT / ".venv-interop-s3fs" / "bin" / "python"
        return [python, Path(__file__).with_name("s3fs_command.py"), self.endpoint.url]

    def put_file(self, path: Path, key: str) -> None:
        self.run("put", self.bucket, key, path)

    def get_file(self, key: str, path: Path) -> subprocess.CompletedProcess:
        return self.run("get", self.bucket, key, path, check=False)

    def range(self, key: str, first: int, last: int) -> bytes:
        self.run("range", self.bucket, key, self.folder / "part", str(first), str(last))
        return (self.folder / "part").read_bytes()

    def keys(self, prefix: str = "") -> list[str]:
        found = json.loads(self.run("keys", self.bucket).stdout)
        return [key for key in found if key.startswith(prefix)]

    def delete(self, key: str) -> None:
        self.run("delete", self.bucket, key)


QUICK = [Boto3, Boto3OverTls, Awscrt, Obstore, Awscli]
LONG = [AwscliOfDebian, S3cmd, Rclone, S3fs]
ClientError = botocore.exceptions.ClientError
