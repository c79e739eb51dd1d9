# SPDX-License-Identifier: Apache-2.0
"""A real `kvern serve` on a folder and a free port, for tests of what documents and deploy/ say about it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import code_facts as code
from prometheus_client.parser import text_string_to_metric_families

START_S = STOP_S = 30


# Requests after which every metric of a server has a value.
TRAFFIC = [("PUT", "/cache", None), ("PUT", "/cache/ns/label", b"some/model"), ("PUT", "/cache/ns/aa/object", b"x" * 100_000),
           ("GET", "/cache/ns/aa/object", None), ("GET", "/cache/nothing", None), ("GET", "/cache?list-type=2", None)]


class Server:
    def __init__(self, port: int):
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        request = urllib.request.Request(self.url + path, body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@contextlib.contextmanager
def served(folder: Path, *words: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    """With `words` as further options. It must end well when it is told to."""
    (folder / "store").mkdir(exist_ok=True)
    port_file, log = folder / "port", folder / "log"
    port_file.unlink(missing_ok=True)
    given = list(words)
    if "--listen" in given:  # wherever it should listen, here it takes a free port
        at = given.index("--listen")
        del given[at:at + 2]
    if "--operations" in given:
        given[given.index("--operations") + 1] = "127.0.0.1:0"
    command = [code.KVERN, "serve", "--store", f"file://{folder}/store", "--listen", "127.0.0.1:0", "--port-file", port_file, *given]
    with log.open("w") as told:
        process = subprocess.Popen([str(part) for part in command], env=env or dict(os.environ), stdout=told, stderr=told)
    try:
        until = time.monotonic() + START_S
        while not port_file.exists():
            assert process.poll() is None and time.monotonic() < until, f"kvern serve {' '.join(words)}: {log.read_text()}"
            time.sleep(0.05)
        yield Server(int(port_file.read_text()))
        process.terminate()
        assert process.wait(timeout=STOP_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def scraped(folder: Path) -> dict[str, set[str]]:
    """The labels of each sample of a server that has served; restarted, so that its scan has found the label."""
    with served(folder, "--anonymous") as server:
        for method, path, body in TRAFFIC:
            server.ask(method, path, body)
    with served(folder, "--anonymous") as server:
        for method, path, body in TRAFFIC:
            server.ask(method, path, body)
        families = list(text_string_to_metric_families(server.ask("GET", "/-/metrics")[1].decode()))
    assert all(family.documentation for family in families)
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}
