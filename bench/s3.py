#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the S3 server and the S3 client are, each against the plainest program that does the same, in one run.

    ./run bench s3 server      kvern serve on mem: and on cached files against nginx, a bare receive loop and SeaweedFS
    ./run bench s3 client      the s3: store against bare recv() and other clients, all reading from nginx
    ./run bench s3 windows     the s3: store on kvern serve, bytes in bodies of HTTP and straight into memory (on this host, and
                               by libfabric over TCP), and plain loops of memcpy and of libfabric's writes and reads

Contenders take turns within a round, so that a busy machine is busy for all; a cell is the best of its rounds, and each
ratio is of two cells. Figures are GB (1e9 bytes) a second, CPU seconds a GB (client and server apart), requests a second.
Peers that are not installed are left out and named: nginx is a Debian package; the Python clients and SeaweedFS are in
.venv-interop, NIXL in .venv-lmcache (./run setup --interop makes both).
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
INTEROP = ROOT / ".venv-interop" / "bin"
WITH_NIXL = ROOT / ".venv-lmcache" / "bin"  # NIXL comes with LMCache
KEYS = {"KVERN_ACCESS_KEY": "bench-access", "KVERN_SECRET_KEY": "bench-secret",
        "AWS_ACCESS_KEY_ID": "bench-access", "AWS_SECRET_ACCESS_KEY": "bench-secret"}
MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
BUCKET = "bench"
CONNECTIONS = 8
OFI = "tcp;ofi_rxm"  # libfabric's provider where there is no RDMA device
RDMA = {"HTTP": "off", "local": "local", "ofi": "ofi"}  # ways, as rdma= names them


def program(name: str) -> str:
    found = next((path for path in BUILD.rglob(name) if path.is_file() and os.access(path, os.X_OK)), None)
    if not found:
        sys.exit(f"bench s3: the release build has no {name}: ./run build")
    return str(found)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A process that listens; `cpu()` is what it has used so far, in seconds, all its threads together."""

    def __init__(self, name: str, command: list[str], port: int, env: dict[str, str] | None = None, keys: bool = True):
        self.name, self.port, self.keys = name, port, keys
        self.process = subprocess.Popen(command, env=os.environ | (env or {}), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.stop()
        sys.exit(f"bench s3: {name} does not listen: {self.process.stderr.read().decode(errors='replace')[-2000:]}")

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
            return
        self.process.kill()


def kvern_serve(name: str, store: str, *options: str) -> Server:
    port = free_port()
    command = [program("kvern"), "serve", "--store", store, "--listen", f"127.0.0.1:{port}", *options]
    return Server(name, command, port, KEYS)


def nginx(folder: Path) -> Server | None:
    """Serves folder/objects by read and write with large buffers, one worker: the quickest that nginx is on loopback."""
    found = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if not found:
        return None
    port = free_port()
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; sendfile off; output_buffers 2 1m; keepalive_requests 1000000000; {temporary}\n"
        f"  server {{ listen 127.0.0.1:{port}; root {folder}/objects; }} }}\n")
    return Server("nginx", [found, "-c", str(folder / "nginx.conf")], port, keys=False)


def sink() -> Server:
    """A thread a connection that receives and forgets."""
    process = subprocess.Popen([program("kvern_bench_http_plain"), "sink"], stdout=subprocess.PIPE, text=True)
    server = Server.__new__(Server)
    server.name, server.process, server.keys = "plain receive", process, False
    server.port = int(process.stdout.readline())
    return server


def seaweedfs(folder: Path) -> Server | None:
    weed = INTEROP / "weed"
    if not weed.exists():
        return None
    port = free_port()
    (folder / "s3.json").write_text(json.dumps({"identities": [{
        "name": "bench", "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        "credentials": [{"accessKey": KEYS["KVERN_ACCESS_KEY"], "secretKey": KEYS["KVERN_SECRET_KEY"]}]}]}))
    command = [str(weed), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", f"-master.port={free_port()}",
               "-master.volumeSizeLimitMB=1024", f"-volume.port={free_port()}", "-volume.max=64", "-filer",
               f"-filer.port={free_port()}", "-filer.maxMB=16", "-s3", f"-s3.port={port}", f"-s3.config={folder}/s3.json"]
    return Server("SeaweedFS", command, port)


def plain(mode: str, server: Server, seconds: float, size: int, paths: list[str], connections: int = CONNECTIONS,
          options: tuple[str, ...] = ()) -> dict:
    """One run of the plain client; with the server's CPU seconds a GB beside its own."""
    command = [program("kvern_bench_http_plain"), mode, "--port", str(server.port), "--connections", str(connections),
               "--seconds", str(seconds), "--bytes", str(size), *options, *paths]
    before = server.cpu()
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | (KEYS if server.keys else {}))
    if ran.returncode != 0:
        sys.exit(f"bench s3: {server.name}: {ran.stderr.strip()}")
    result = json.loads(ran.stdout)
    result["server_cpu_s_per_gb"] = (server.cpu() - before) / max(result["gb_per_s"] * seconds, 1e-9)
    return result


def best(old: dict | None, new: dict) -> dict:
    return new if old is None or new["requests_per_s"] > old["requests_per_s"] else old


def ratio(a: dict, b: dict, what: str = "gb_per_s") -> float:
    return a[what] / b[what]


class Verdicts:
    """Figures against the limits that were set for them; called with each, it keeps a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str, value: float, limit: float, less: bool = False) -> None:
        good = value <= limit if less else value >= limit
        self.lines.append(f"{'reached' if good else 'MISSED '}  {text}: {value:.2f} ({'at most' if less else 'at least'} {limit})")


def make_bucket(server: Server) -> None:
    head = subprocess.run([sys.executable, "-c", MAKE_BUCKET, str(server.port), BUCKET], env=os.environ | KEYS, check=False)
    if head.returncode != 0:
        sys.exit(f"bench s3: {server.name}: the bucket could not be made")


MAKE_BUCKET = """
import datetime, hashlib, hmac, os, sys, urllib.request
port, bucket = sys.argv[1:]
now = datetime.datetime.now(datetime.timezone.utc).strftime('%Y%m%dT%H%M%SZ')
host, empty = f'127.0.0.1:{port}', hashlib.sha256(b'').hexdigest()
names = 'host;x-amz-content-sha256;x-amz-date'
canonical = f'PUT\\n/{bucket}\\n\\nhost:{host}\\nx-amz-content-sha256:{empty}\\nx-amz-date:{now}\\n\\n{names}\\n{empty}'
scope = f'{now[:8]}/us-east-1/s3/aws4_request'
text = f'AWS4-HMAC-SHA256\\n{now}\\n{scope}\\n{hashlib.sha256(canonical.encode()).hexdigest()}'
key = ('AWS4' + os.environ['AWS_SECRET_ACCESS_KEY']).encode()
for part in (now[:8], 'us-east-1', 's3', 'aws4_request'):
    key = hmac.new(key, part.encode(), hashlib.sha256).digest()
signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
request = urllib.request.Request(f'http://{host}/{bucket}', method='PUT', headers={
    'x-amz-date': now, 'x-amz-content-sha256': empty, 'Authorization':
    f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope}, SignedHeaders={names}, Signature={signature}"})
urllib.request.urlopen(request, timeout=20)
"""


# ------------------------------------------------------------------------------------------------------------- server


def bench_server(args: argparse.Namespace, folder: Path) -> tuple[dict, list[str], list[str]]:
    sizes = {"4 KiB": 4096, "4 MiB": 4 * MIB, "16 MiB": 16 * MIB}
    (folder / "objects" / BUCKET).mkdir(parents=True)
    (folder / "files").mkdir()
    (folder / "weed").mkdir()
    with contextlib.ExitStack() as stack:
        def started(server: Server | None) -> Server | None:
            if server:
                stack.callback(server.stop)
            return server

        mem = started(kvern_serve("kvern mem:", "mem:?size=1GiB"))
        files = started(kvern_serve("kvern file: (cached)", f"file://{folder}/files?direct=off"))
        origin, weed = started(nginx(folder)), started(seaweedfs(folder / "weed"))
        receive = started(sink())
        missing = [name for name, server in (("nginx", origin), ("SeaweedFS", weed)) if server is None]
        signed = [server for server in (mem, files, weed) if server]
        for server in signed:
            make_bucket(server)
        for name, size in sizes.items():
            key = name.replace(" ", "")
            data = os.urandom(size)
            (folder / "objects" / BUCKET / key).write_bytes(data)
            for server in signed:
                plain("put", server, 0.05, size, [f"/{BUCKET}/{key}"], 1)
        cells: dict[str, dict] = {}

        def run(cell: str, server: Server | None, mode: str, size: int, path: str, **more) -> None:
            if server:
                cells[cell] = best(cells.get(cell), plain(mode, server, args.seconds, size, [path], **more))
                print(".", end="", flush=True, file=sys.stderr)

        for _ in range(args.rounds):
            for name, size in list(sizes.items())[1:]:
                key = name.replace(" ", "")
                for server in (origin, mem, files, weed):
                    # The plain client wrote PATH-0-0 into the servers that take puts.
                    path = f"/{BUCKET}/{key}" + ("" if server is origin else "-0-0")
                    run(f"GET {name} {server.name if server else ''}", server, "get", size, path)
                for server in (receive, mem, weed):
                    run(f"PUT {name} {server.name if server else ''}", server, "put", size, f"/{BUCKET}/{key}",
                        options=("--checksum",))
            for server in (origin, mem, files):
                path = f"/{BUCKET}/4KiB" + ("" if server is origin else "-0-0")
                run(f"GET 4 KiB {server.name if server else ''}", server, "epoll", 4096, path, connections=16)
                run(f"GET 4 KiB, one at a time {server.name if server else ''}", server, "get", 4096, path, connections=1)
        print(file=sys.stderr)
    verdict = Verdicts()

    for name in ("4 MiB", "16 MiB"):
        for store in ("kvern mem:", "kvern file: (cached)"):
            if origin:
                verdict(f"GET {name} {store} / nginx", ratio(cells[f"GET {name} {store}"], cells[f"GET {name} nginx"]), 1.1)
        verdict(f"PUT {name} kvern mem: / plain receive", ratio(cells[f"PUT {name} kvern mem:"], cells[f"PUT {name} plain receive"]), 0.75)
        if weed:
            verdict(f"PUT {name} kvern mem: / SeaweedFS", ratio(cells[f"PUT {name} kvern mem:"], cells[f"PUT {name} SeaweedFS"]), 5)
    verdict("GET 4 KiB a second, signed and verified, mem:", cells["GET 4 KiB kvern mem:"]["requests_per_s"], 30000)
    verdict("p99 of GET 4 KiB, one at a time, mem:, us", cells["GET 4 KiB, one at a time kvern mem:"]["p99_us"], 150, less=True)
    return cells, verdict.lines, missing


# ------------------------------------------------------------------------------------------------------------- client


def bench_client(args: argparse.Namespace, folder: Path) -> tuple[dict, list[str], list[str]]:
    sizes = {"4 KiB": 4096, "4 MiB": 4 * MIB, "16 MiB": 16 * MIB}
    objects = folder / "objects" / BUCKET
    objects.mkdir(parents=True)
    for name, size in sizes.items():
        for i in range(8):
            (objects / f"{name.replace(' ', '')}-{i}").write_bytes(os.urandom(size))
    origin = nginx(folder)
    if not origin:
        sys.exit("bench s3 client: nginx is missing: apt-get install nginx-light")
    cells: dict[str, dict] = {}
    missing: list[str] = []
    uri = f"s3://{BUCKET}?endpoint=http://127.0.0.1:{origin.port}&checksum=none"

    def keep(cell: str, result: dict) -> None:
        cells[cell] = best(cells.get(cell), result)
        print(".", end="", flush=True, file=sys.stderr)

    def ours(cell: str, size: int, keys: list[str], depth: int, more: str = "") -> None:
        command = [program("kvern_bench_s3_client"), uri + more, "--depth", str(depth), "--bytes", str(size), "--seconds",
                   str(args.seconds), *keys]
        ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | KEYS)
        if ran.returncode != 0:
            sys.exit(f"bench s3: {cell}: {ran.stderr.strip()}")
        keep(cell, json.loads(ran.stdout))

    def peer(client: str, name: str, size: int, keys: list[str]) -> None:
        if client in missing:
            return
        python = (WITH_NIXL if client == "nixl" else INTEROP) / "python"
        command = [str(python), str(ROOT / "bench" / "s3_peers.py"), client, "--port", str(origin.port), "--bucket", BUCKET,
                   "--depth", str(CONNECTIONS), "--bytes", str(size), "--seconds", str(args.seconds), *keys]
        ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | KEYS) if python.exists() else None
        if ran is None or ran.returncode != 0:
            missing.append(client)
            if ran is not None:
                print(f"\n{client}: {ran.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return
        keep(f"GET {name} {client}", json.loads(ran.stdout.strip().splitlines()[-1]))  # NIXL logs there, too

    try:
        for _ in range(args.rounds):
            for name, size in list(sizes.items())[1:]:
                keys = [f"{name.replace(' ', '')}-{i}" for i in range(8)]
                keep(f"GET {name} plain recv", plain("get", origin, args.seconds, size, [f"/{BUCKET}/{key}" for key in keys]))
                ours(f"GET {name} kvern", size, keys, CONNECTIONS)
                for client in ("nixl", "awscrt", "obstore", "boto3"):
                    peer(client, name, size, keys)
            keys = [f"4MiB-{i}" for i in range(8)]
            keep("GET 4 MiB, one at a time plain recv", plain("get", origin, args.seconds, 4 * MIB, [f"/{BUCKET}/{key}" for key in keys], 1))
            ours("GET 4 MiB, one at a time kvern", 4 * MIB, keys, 1)
            keys = [f"4KiB-{i}" for i in range(8)]
            keep("GET 4 KiB plain epoll", plain("epoll", origin, args.seconds, 4096, [f"/{BUCKET}/{key}" for key in keys], 16))
            ours("GET 4 KiB kvern, unsigned", 4096, keys, 16, "&anonymous=1")
            ours("GET 4 KiB kvern, signed", 4096, keys, 16)
    finally:
        origin.stop()
    print(file=sys.stderr)
    verdict = Verdicts()

    for name in ("4 MiB", "16 MiB"):
        mine, bare = cells[f"GET {name} kvern"], cells[f"GET {name} plain recv"]
        verdict(f"GET {name} kvern / plain recv", ratio(mine, bare), 0.9)
        verdict(f"CPU a GB {name} kvern / plain recv", ratio(mine, bare, "cpu_s_per_gb"), 1.15, less=True)
        if f"GET {name} nixl" in cells:
            verdict(f"GET {name} kvern / NIXL OBJ", ratio(mine, cells[f"GET {name} nixl"]), 1.2)
            verdict(f"CPU a GB {name} kvern / NIXL OBJ", ratio(mine, cells[f"GET {name} nixl"], "cpu_s_per_gb"), 0.6, less=True)
        for client, limit in (("awscrt", 2), ("obstore", 2), ("boto3", 1)):
            if f"GET {name} {client}" in cells and (name == "4 MiB" or client == "boto3"):
                verdict(f"GET {name} kvern / {client}", ratio(mine, cells[f"GET {name} {client}"]), limit)
    alone = "GET 4 MiB, one at a time "
    verdict("p50 of one 4 MiB GET kvern / plain recv", ratio(cells[alone + "kvern"], cells[alone + "plain recv"], "p50_us"), 1.2, less=True)
    verdict("GET 4 KiB a second kvern, unsigned / plain epoll", ratio(cells["GET 4 KiB kvern, unsigned"], cells["GET 4 KiB plain epoll"], "requests_per_s"), 0.8)
    verdict("GET 4 KiB a second kvern, signed / unsigned", ratio(cells["GET 4 KiB kvern, signed"], cells["GET 4 KiB kvern, unsigned"], "requests_per_s"), 0.9)
    return cells, verdict.lines, missing


# ------------------------------------------------------------------------------------------------------------ windows


def bench_windows(args: argparse.Namespace, folder: Path) -> tuple[dict, list[str], list[str]]:
    sizes = {"4 KiB": 4096, "4 MiB": 4 * MIB, "16 MiB": 16 * MIB}
    (folder / "files").mkdir()
    cells: dict[str, dict] = {}
    with contextlib.ExitStack() as stack:
        rdma = ["--rdma", "local,ofi", "--fabric-providers", OFI, "--fabric-address", "127.0.0.1"]
        servers = [kvern_serve("mem:", "mem:?size=2GiB", *rdma), kvern_serve("file:", f"file://{folder}/files?direct=on", *rdma)]
        for server in servers:
            stack.callback(server.stop)
            make_bucket(server)

        def measure(cell: str, path: str, command: list[str], size: int, depth: int, put: bool) -> dict:
            loop = ["--depth", str(depth), "--bytes", str(size), "--seconds", str(args.seconds), "--put", str(int(put))]
            ran = subprocess.run([*command, *loop], capture_output=True, text=True, env=os.environ | KEYS)
            if ran.returncode != 0:
                sys.exit(f"bench s3: {cell}: {ran.stderr.strip()}")
            return json.loads(ran.stdout) | {"path": path}

        def ceilings(what: str, size: int, put: bool) -> None:
            copied, moved = f"{what} memcpy", f"{what} {'fi_read' if put else 'fi_write'}"
            loop = [program("kvern_bench_s3_client"), "memcpy", "none"]
            cells[copied] = best(cells.get(copied), measure(copied, "memory", loop, size, CONNECTIONS, put))
            loop = [program("kvern_bench_ofi_plain"), OFI, "127.0.0.1"]
            cells[moved] = best(cells.get(moved), measure(moved, OFI, loop, size, CONNECTIONS, put))

        def run(cell: str, server: Server, size: int, depth: int, put: bool, way: str, more: str = "") -> None:
            uri = f"s3://{BUCKET}?endpoint=http://127.0.0.1:{server.port}&rdma={RDMA[way]}{more}"
            keys = [f"{size}-{i}" for i in range(max(8, depth))]
            before = server.cpu()
            result = measure(cell, way, [program("kvern_bench_s3_client"), uri, *keys], size, depth, put)
            result["server_cpu_s_per_gb"] = (server.cpu() - before) / max(result["gb_per_s"] * args.seconds, 1e-9)
            cells[cell] = best(cells.get(cell), result)
            print(".", end="", flush=True, file=sys.stderr)

        for _ in range(args.rounds):
            for name, size in sizes.items():
                for put in (True, False):
                    what = ("PUT " if put else "GET ") + name
                    if size > 4096:
                        ceilings(what, size, put)
                    for server in servers:
                        for way in RDMA:
                            cell = f"{what} {server.name} {way}"
                            run(cell, server, size, 16 if size == 4096 else CONNECTIONS, put, way)
                            if size > 4096:
                                run(cell + ", unverified", server, size, CONNECTIONS, put, way, "&checksum=none")
            for way in RDMA:
                run(f"GET 4 MiB, one at a time mem: {way}", servers[0], 4 * MIB, 1, False, way)
    print(file=sys.stderr)
    verdict = Verdicts()

    for name in ("4 MiB", "16 MiB"):
        for what in (f"GET {name}", f"PUT {name}"):
            bare, http = cells[f"{what} mem: local, unverified"], cells[f"{what} mem: HTTP, unverified"]
            verdict(f"{what} mem: local / memcpy, unverified", ratio(bare, cells[f"{what} memcpy"]), 0.9)
            verdict(f"{what} mem: local / HTTP", ratio(cells[f"{what} mem: local"], cells[f"{what} mem: HTTP"]), 2)
            verdict(f"{what} mem: client CPU a GB, local / HTTP, unverified", ratio(bare, http, "cpu_s_per_gb"), 0.1, less=True)
            loop = f"{what} {'fi_write' if what.startswith('GET') else 'fi_read'}"
            verdict(f"{what} mem: ofi / its plain loop, unverified", ratio(cells[f"{what} mem: ofi, unverified"], cells[loop]), 0.9)
            verdict(f"{what} mem: ofi / HTTP", ratio(cells[f"{what} mem: ofi"], cells[f"{what} mem: HTTP"]), 1)
        verdict(f"GET {name} file: server CPU s a GB, local, unverified", cells[f"GET {name} file: local, unverified"]["server_cpu_s_per_gb"], 0.1, less=True)
    alone = "GET 4 MiB, one at a time mem: "
    verdict("p50 of one 4 MiB GET mem: local / HTTP", ratio(cells[alone + "local"], cells[alone + "HTTP"], "p50_us"), 0.7, less=True)
    verdict("GET 4 KiB a second mem: local", cells["GET 4 KiB mem: local"]["requests_per_s"], 10000)
    return cells, verdict.lines, []


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run bench s3", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["server", "client", "windows"])
    parser.add_argument("--seconds", type=float, default=2, help="of each cell in each round (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="a cell is the best of so many (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvern-bench-s3-") as name:
        bench = {"server": bench_server, "client": bench_client, "windows": bench_windows}[args.what]
        cells, verdicts, missing = bench(args, Path(name))
    report = {"what": args.what, "seconds": args.seconds, "rounds": args.rounds, "cells": cells, "verdicts": verdicts, "missing": missing}
    kept = ROOT / "build" / "bench" / f"s3-{args.what}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(report, indent=1) + "\n")
    if args.json:
        print(json.dumps(report))
        return
    print(f"{'':44} {'GB/s':>7} {'req/s':>9} {'client':>8} {'server':>8} {'p50 us':>9} {'p99 us':>9}")
    for cell, result in sorted(cells.items()):
        server = result.get("server_cpu_s_per_gb")
        print(f"{cell:44} {result['gb_per_s']:7.2f} {result['requests_per_s']:9.0f} {result['cpu_s_per_gb']:8.3f} "
              f"{'' if server is None else format(server, '8.3f'):>8} {result['p50_us']:9.0f} {result['p99_us']:9.0f}")
    print("\nclient and server: CPU seconds a GB\n" + "\n".join(verdicts))
    if missing:
        print("not there, so not compared: " + ", ".join(missing))
    print(f"kept as {kept.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
