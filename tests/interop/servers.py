# SPDX-License-Identifier: Apache-2.0
"""The servers of the interop tests: `kvern serve` and others' S3 servers, each a process of its own on loopback.

Every server has a folder of its own and a log in it. All are ended by their process id; nothing outlives the tests.
Only the standard library is needed to start one: the engine's tests do, in another environment.
"""
from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("KVERN_BUILD", ROOT / "build" / "release"))
ACCESS, SECRET, REGION = "kvern-test-key", "kvern-test-secret/+=", "us-east-1"
START_S = 60.0
STOP_S = 40.0
LOG_TAIL_LINES = 30
MIB = 1 << 20


def kvern() -> Path:
    """The kvern command of the build under test."""
    found = [path for path in BUILD.rglob("kvern") if path.is_file() and os.access(path, os.X_OK)]
    assert found, f"{BUILD} has no program kvern: ./run build"
    return found[0]


def tool(name: str) -> Path:
    """A program of the environment that runs the tests."""
    return Path(sys.executable).parent / name


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def wait_until(ready: Callable[[], object], what: str, timeout_s: float = START_S) -> None:
    end = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < end, f"{what} within {timeout_s} s"
        time.sleep(0.02)


class Process:
    """A program in the background; its output goes to `log`."""

    def __init__(self, command: list[str | Path], log: Path, env: dict[str, str] | None = None):
        self.log = log
        with log.open("ab") as output:
            self.popen = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output,
                                          stderr=output, env={**os.environ, **(env or {})}, start_new_session=True)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def alive(self) -> bool:
        return self.popen.poll() is None

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"-- the end of {self.log}", *lines])

    def check(self) -> None:
        assert self.alive(), f"it ended with {self.popen.returncode}\n{self.tail()}"

    def kill(self) -> None:
        """As a crash: no warning, no chance to tidy up."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()

    def stop(self, timeout_s: float = STOP_S) -> int:
        """Asks it to end and gives its exit status; kills what does not."""
        if self.alive():
            self.popen.terminate()
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return -9
        finally:
            self.kill()


@dataclass
class Endpoint:
    """Where S3 is spoken, and with which key."""

    host: str
    port: int
    tls: bool = False
    ca: Path | None = None
    access: str = ACCESS
    secret: str = SECRET

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def boto3(self, **config):
        """A client with boto3's own defaults, but without retries unless asked for."""
        import boto3
        import botocore.config

        settings = {"retries": {"total_max_attempts": 1}, "s3": {"addressing_style": "path"}, "read_timeout": 120, **config}
        return boto3.client("s3", endpoint_url=self.url, aws_access_key_id=self.access, region_name=REGION,
                            aws_secret_access_key=self.secret, verify=str(self.ca) if self.ca else None,
                            config=botocore.config.Config(**settings))

    def env(self) -> dict[str, str]:
        """For programs that find keys as AWS's tools do, and nothing else of the machine's."""
        return {"AWS_ACCESS_KEY_ID": self.access, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION, "AWS_CONFIG_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", **({"AWS_CA_BUNDLE": str(self.ca)} if self.ca else {})}

    def get(self, path: str) -> tuple[int, bytes]:
        """An unsigned GET of one of the server's own pages."""
        if self.tls:
            context = ssl.create_default_context(cafile=str(self.ca))
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=30, context=context)
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()


class KvernServe:
    """`kvern serve` on a free port, which stays the same over restarts. Its store is `store`, a folder unless it is a URI."""

    def __init__(self, folder: Path, *options: str, store: str | None = None, tls: bool = False, env: dict[str, str] | None = None):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.options, self.env_extra = folder, list(options), env or {}
        self.data = folder / "store"
        self.data.mkdir(exist_ok=True)
        self.store = store or f"file://{self.data}"
        self.endpoint = Endpoint("localhost" if tls else "127.0.0.1", 0, tls)
        if tls:
            self.endpoint.ca = folder / "certificate.pem"
            make_certificate(self.endpoint.ca, folder / "key.pem")
            self.options += ["--tls-cert", str(self.endpoint.ca), "--tls-key", str(folder / "key.pem")]
        self.process: Process | None = None
        self.start()

    def start(self) -> None:
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        listen = f"127.0.0.1:{self.endpoint.port}"
        env = {"KVERN_ACCESS_KEY": ACCESS, "KVERN_SECRET_KEY": SECRET, **self.env_extra}
        self.process = Process([kvern(), "serve", "--store", self.store, "--listen", listen, "--port-file", port_file,
                                *self.options], self.folder / "serve.log", env)
        wait_until(lambda: port_file.exists() or not self.process.alive(), "kvern serve listens")
        self.process.check()
        self.endpoint.port = int(port_file.read_text())

    def kill(self) -> None:
        self.process.kill()

    def restart(self) -> None:
        self.process.kill()
        self.start()

    def stop(self) -> int:
        return self.process.stop()

    def boto3(self, **config):
        return self.endpoint.boto3(**config)

    def rss_bytes(self) -> int:
        """The memory that the process holds now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the process has no VmRSS")


def make_certificate(certificate: Path, key: Path) -> None:
    """A certificate for localhost that is its own authority."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)


# ------------------------------------------------------------------------------------------------------ others' servers


def answers_s3(endpoint: Endpoint) -> bool:
    try:
        endpoint.boto3(connect_timeout=2, read_timeout=5).list_buckets()
        return True
    except Exception:  # whatever a server says while it starts
        return False


def may_write(endpoint: Endpoint) -> bool:
    """Some list before they can store."""
    try:
        client = endpoint.boto3(connect_timeout=2, read_timeout=5)
        client.create_bucket(Bucket="may-write")
        client.put_object(Bucket="may-write", Key="k", Body=b"v")
        client.delete_object(Bucket="may-write", Key="k")
        return True
    except client.exceptions.BucketAlreadyOwnedByYou:
        client.put_object(Bucket="may-write", Key="k", Body=b"v")
        return True
    except Exception:
        return False


@contextlib.contextmanager
def running(process: Process, endpoint: Endpoint, what: str) -> Iterator[Endpoint]:
    try:
        wait_until(lambda: answers_s3(endpoint) or not process.alive(), f"{what} answers")
        process.check()
        wait_until(lambda: may_write(endpoint), f"{what} stores")
        yield endpoint
    finally:
        process.kill()


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[Endpoint]:
    folder.mkdir(parents=True)
    config = folder / "s3.json"
    config.write_text('{"identities":[{"name":"test","credentials":[{"accessKey":"%s","secretKey":"%s"}],'
                      '"actions":["Admin","Read","List","Tagging","Write"]}]}' % (ACCESS, SECRET))
    parts = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
             "s3.port", "s3.port.grpc")
    ports = dict(zip(parts, free_ports(len(parts))))
    process = Process([tool("weed"), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-filer", "-s3",
                       "-master.volumeSizeLimitMB=1024", "-volume.max=64", f"-s3.config={config}",
                       "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false",
                       *(f"-{part}={port}" for part, port in ports.items())], folder / "weed.log")
    with running(process, Endpoint("127.0.0.1", ports["s3.port"]), "SeaweedFS") as endpoint:
        yield endpoint


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[Endpoint]:
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    process = Process([tool("moto_server"), "-H", "127.0.0.1", "-p", str(port)], folder / "moto.log")
    with running(process, Endpoint("127.0.0.1", port), "moto") as endpoint:
        yield endpoint


def ceph_missing() -> str:
    """Why there can be no Ceph here, or nothing."""
    needed = ("ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "radosgw-admin", "ceph-authtool", "monmaptool", "ceph")
    missing = [name for name in needed if not shutil.which(name)]
    return f"Debian's Ceph is not installed: {', '.join(missing)}" if missing else ""


@contextlib.contextmanager
def ceph_rgw(folder: Path) -> Iterator[Endpoint]:
    """One monitor, one manager, one store in memory and one gateway."""
    from ceph import Ceph

    cluster = Ceph(folder)
    try:
        endpoint = cluster.start()
        wait_until(lambda: answers_s3(endpoint), "Ceph's gateway answers", 120)
        wait_until(lambda: may_write(endpoint), "Ceph's gateway stores")
        yield endpoint
    finally:
        cluster.kill()
