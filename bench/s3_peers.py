#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gets by other S3 clients, for bench/s3.py: one client, one line of JSON as kvern_bench_s3_client prints.

    s3_peers.py boto3|awscrt|obstore|nixl --port P --bucket B --depth N --bytes B --seconds S KEY...

Each get ends in memory of the caller's that was there before, where the client allows that. Times are wall seconds, CPU is
of this process. Keys are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import resource
import threading
import time

REGION = "us-east-1"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=["boto3", "awscrt", "obstore", "nixl"])
    parser.add_argument("keys", nargs="+")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=3)
    return parser.parse_args()


def boto3_get(args: argparse.Namespace):
    """A function (key, buffer) that gets into the buffer, without response checksums."""
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, max_pool_connections=args.depth, response_checksum_validation="when_required",
                    request_checksum_calculation="when_required")
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{args.port}", region_name=REGION, config=config)

    def get(key: str, buffer: bytearray) -> None:
        stream = client.get_object(Bucket=args.bucket, Key=key)["Body"]._raw_stream
        view, done = memoryview(buffer), 0
        while done < len(buffer):
            size = stream.readinto(view[done:])
            if not size:
                raise RuntimeError(f"{key}: only {done} bytes")
            done += size
        stream.release_conn()

    return get


def awscrt_get(args: argparse.Namespace):
    """The same by the common runtime's S3 client, whose callback copies into the buffer."""
    from awscrt import auth, http, io, s3

    bootstrap = io.ClientBootstrap(io.EventLoopGroup(0), io.DefaultHostResolver(io.EventLoopGroup(1)))
    provider = auth.AwsCredentialsProvider.new_static(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    client = s3.S3Client(bootstrap=bootstrap, region=REGION, tls_mode=s3.S3RequestTlsMode.DISABLED, throughput_target_gbps=100,
                         signing_config=s3.create_default_s3_signing_config(region=REGION, credential_provider=provider))

    def get(key: str, buffer: bytearray) -> None:
        view = memoryview(buffer)

        def arrived(chunk, offset, **_):
            view[offset:offset + len(chunk)] = chunk

        headers = http.HttpHeaders([("Host", f"127.0.0.1:{args.port}"), ("Content-Length", "0")])
        request = http.HttpRequest("GET", f"/{args.bucket}/{key}", headers)
        client.make_request(type=s3.S3RequestType.GET_OBJECT, request=request, on_body=arrived).finished_future.result(60)

    return get


def obstore_get(args: argparse.Namespace):
    """The same by obstore; its bytes are copied into the buffer once."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(args.bucket, endpoint=f"http://127.0.0.1:{args.port}", region=REGION, virtual_hosted_style_request=False,
                    access_key_id=os.environ["AWS_ACCESS_KEY_ID"], secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
                    client_options={"allow_http": True})

    def get(key: str, buffer: bytearray) -> None:
        buffer[:] = memoryview(obstore.get(store, key).bytes())

    return get


def run_threads(args: argparse.Namespace, get) -> tuple[float, list[float]]:
    """`depth` threads, each with one get at a time, for `seconds`. Wall seconds, and the latency of each get."""
    buffers = [bytearray(args.bytes) for _ in range(args.depth)]
    latencies: list[float] = []
    lock = threading.Lock()
    for buffer in buffers:
        get(args.keys[0], buffer)
    end = time.perf_counter() + args.seconds

    def work(index: int) -> None:
        mine, count = [], index
        while time.perf_counter() < end:
            start = time.perf_counter()
            get(args.keys[count % len(args.keys)], buffers[index])
            mine.append(time.perf_counter() - start)
            count += 1
        with lock:
            latencies.extend(mine)

    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(args.depth) as pool:
        list(pool.map(work, range(args.depth)))
    return time.perf_counter() - start, latencies


def run_nixl(args: argparse.Namespace) -> tuple[float, list[float]]:
    """NIXL's OBJ plugin: one request of `depth` objects at a time, into registered memory."""
    import numpy as np
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    agent = nixl_agent("bench", nixl_agent_config(backends=[]))
    agent.create_backend("OBJ", {
        "access_key": os.environ["AWS_ACCESS_KEY_ID"], "secret_key": os.environ["AWS_SECRET_ACCESS_KEY"], "bucket": args.bucket,
        "endpoint_override": f"http://127.0.0.1:{args.port}", "scheme": "http", "region": REGION,
        "use_virtual_addressing": "false", "req_checksum": "required", "resp_checksum": "required"})
    memory = np.zeros(args.depth * args.bytes, np.uint8)
    at = memory.ctypes.data
    local = agent.get_reg_descs([(at + i * args.bytes, args.bytes, 0, "") for i in range(args.depth)], "DRAM")
    remote = agent.get_reg_descs([(0, args.bytes, i, args.keys[i % len(args.keys)]) for i in range(args.depth)], "OBJ")
    agent.register_memory(local)
    agent.register_memory(remote)
    handle = agent.initialize_xfer("READ", local.trim(), remote.trim(), agent.name)

    def once() -> None:
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        if state != "DONE":
            raise RuntimeError(f"NIXL: transfer ended as {state}")

    once()
    latencies: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() < begin + args.seconds:
        start = time.perf_counter()
        once()
        latencies += [time.perf_counter() - start] * args.depth
    return time.perf_counter() - begin, latencies


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    args = arguments()
    makers = {"boto3": boto3_get, "awscrt": awscrt_get, "obstore": obstore_get}
    get = makers[args.client](args) if args.client in makers else None
    before = cpu_seconds()
    seconds, latencies = run_threads(args, get) if get else run_nixl(args)
    used = cpu_seconds() - before
    gigabytes = len(latencies) * args.bytes * 1e-9
    latencies.sort()
    print(json.dumps({
        "gb_per_s": gigabytes / seconds, "cpu_s_per_gb": used / gigabytes, "requests_per_s": len(latencies) / seconds,
        "cpu_us_per_request": used * 1e6 / len(latencies), "p50_us": latencies[len(latencies) // 2] * 1e6,
        "p99_us": latencies[int((len(latencies) - 1) * 0.99)] * 1e6}))


if __name__ == "__main__":
    main()
