# SPDX-License-Identifier: Apache-2.0
"""An engine whose store is `kvern serve`, for test_s3.py; imported where vLLM is."""
from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from cases import ask_until_hit, flip, stored_tokens
from fault_cases import Faults, faults_while_serving
from real_engine import BLOCK, Engine, objects, prompt, transfer, wait_for_objects
from reply import Reply

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))
import servers  # noqa: E402
from wire import Request, Wire, ask  # noqa: E402

BUCKET = "kv-cache"
RDMA = ["--rdma", "local,ofi", "--fabric-providers", "tcp;ofi_rxm", "--fabric-address", "127.0.0.1"]
TOKENS = 1000  # three whole chunks
FULL = stored_tokens(TOKENS)


class Served:
    """A server over a folder, the URI of an s3: store on it, and the folder in which its objects can be seen."""

    def __init__(self, folder: str, store: str | None = None, rdma: str = "off"):
        os.environ.update(servers.Endpoint("", 0).env())
        self.server = servers.KvernServe(Path(folder), *([] if rdma == "off" else RDMA), store=store)
        endpoint = self.server.endpoint
        made = ask(Request(endpoint, "PUT", f"/{BUCKET}", headers={"content-length": "0"}).sign())
        assert made.status == 200, made
        self.uri = f"s3://{BUCKET}/kv?endpoint={endpoint.url}&region={servers.REGION}&rdma={rdma}"
        self.objects = self.server.data / "object" / BUCKET / "kv"

    def moved(self) -> tuple[int, int]:
        """Bytes that were taken from the engine's memory, and put straight into it."""
        lines = self.server.endpoint.get("/-/metrics")[1].decode().splitlines()
        return tuple(int(next(line.split()[1] for line in lines if line.startswith(f"kvern_server_window_{way}_bytes_total ")))
                     for way in ("received", "sent"))

    def serves(self, path: Path) -> bool:
        """The object in this file is there, and whole: the server verifies what it sends."""
        key = str(path.relative_to(self.objects.parent)).removesuffix("#")
        with Wire(self.server.endpoint) as wire:
            try:
                return wire.ask(Request(self.server.endpoint, "GET", f"/{BUCKET}/{quote(key)}").sign()).status == 200
            except ConnectionError:
                return False  # found out in the middle


def ask_each(model: str, folder: str, prompts: list[tuple[int, int]], expect_objects: int = 0,
             rdma: str = "off") -> tuple[list[tuple[Reply, list[int]]], tuple[int, int]]:
    """Asks (tokens, seed) in a new engine, over a new server on the same folder; answers and digests of blocks, and what
    moved without HTTP. rdma: of the URI; a server that is asked for "auto" or "ofi" offers both."""
    served = Served(folder, rdma=rdma)
    # On a busy machine the first lookup of an engine may take longer than it usually has.
    engine = Engine(model, transfer(served.uri, lookup_deadline_ms=2000))
    engine.wipe()
    seen = []
    for tokens, seed in prompts:
        reply = engine.ask(prompt(tokens, seed))
        seen.append((reply, engine.last_digests(stored_tokens(tokens) // BLOCK)))
    if expect_objects:
        wait_for_objects(served.objects, expect_objects)
    moved = served.moved()
    engine.close()
    assert served.server.stop() == 0
    return seen, moved


@dataclass
class Trouble:
    """One prompt: computed, asked again while something was wrong, and after that."""

    cold: Reply
    hurt: list[Reply] = field(default_factory=list)
    healed: Reply | None = None
    whole: int = 0  # objects that can be read again at the end
    slowest_s: float = 0.0  # of `hurt`
    cold_s: float = 0.0


def begin(engine: Engine, served: Served, seed: int) -> Trouble:
    known = len(objects(served.objects))
    start = time.monotonic()
    trouble = Trouble(engine.ask(prompt(TOKENS, seed)))
    trouble.cold_s = time.monotonic() - start
    wait_for_objects(served.objects, known + 3)
    return trouble


def suffer(engine: Engine, trouble: Trouble, seed: int) -> None:
    engine.wipe()
    start = time.monotonic()
    trouble.hurt.append(engine.ask(prompt(TOKENS, seed)))
    trouble.slowest_s = max(trouble.slowest_s, time.monotonic() - start)


def heal(engine: Engine, trouble: Trouble, seed: int, hit: int = FULL, timeout_s: float = 60.0) -> None:
    trouble.healed = ask_until_hit(engine, prompt(TOKENS, seed), hit, timeout_s)


def removed_and_damaged(model: str, folder: str) -> dict[str, Trouble]:
    """Objects that vanish or rot below the server."""
    served = Served(folder)
    engine = Engine(model, transfer(served.uri))
    found = {}
    for seed, (name, harm) in enumerate({
            "one removed": lambda paths: paths[1].unlink(),
            "all removed": lambda paths: [path.unlink() for path in paths],
            "a flipped bit": lambda paths: flip(paths[1], 0.5),
            "cut short": lambda paths: os.truncate(paths[1], paths[1].stat().st_size // 2)}.items()):
        known = set(objects(served.objects))
        found[name] = begin(engine, served, seed)
        paths = [path for path in objects(served.objects) if path not in known]
        harm(paths)
        suffer(engine, found[name], seed)
        heal(engine, found[name], seed)
        end = time.monotonic() + 15  # a hit that fails is still counted as one, so the objects are looked at
        while found[name].whole < len(paths) and time.monotonic() < end:
            found[name].whole = sum(served.serves(path) for path in paths)
    engine.close()
    served.server.kill()
    return found


def killed_and_restarted(model: str, folder: str, rdma: str = "off") -> dict[str, Trouble]:
    """kill -9 under a serving engine: while it is idle, and while it loads and stores; then back on the same port."""
    served = Served(folder, rdma=rdma)
    engine = Engine(model, transfer(served.uri))
    found = {"idle": begin(engine, served, 1), "busy": begin(engine, served, 2)}
    served.server.kill()
    for _ in range(3):
        suffer(engine, found["idle"], 1)
    served.server.start()
    heal(engine, found["idle"], 1)
    engine.wipe()
    for number in range(4):  # two that are stored, and two that are to be
        engine.add(f"r{number}", prompt(TOKENS, (2, 1, 3, 4)[number]))
    replies = engine.step()
    served.server.kill()
    replies |= engine.run_out()
    found["busy"].hurt.append(next(reply for name, reply in replies.items() if name.startswith("r0")))
    served.server.start()
    heal(engine, found["busy"], 2)
    engine.close()
    served.server.kill()
    return found


def slow_down(model: str, folder: str, seconds: float) -> Trouble:
    """Every request is answered 503 for a while: the store below the server is busy."""
    rules = Path(folder) / "rules.json"
    Path(folder).mkdir(parents=True, exist_ok=True)

    def set_rules(*list_: dict) -> None:
        rules.with_suffix(".new").write_text(json.dumps({"rules": list_}))
        rules.with_suffix(".new").replace(rules)

    set_rules()
    served = Served(folder, store=f"fault:{rules}!file://{folder}/store")
    engine = Engine(model, transfer(served.uri))
    found = begin(engine, served, 1)
    set_rules({"fault": "busy"})
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        suffer(engine, found, 1)
    set_rules()
    heal(engine, found, 1)
    engine.close()
    served.server.kill()
    return found


def faults(model: str, folder: str, control: str) -> Faults:
    """All classes of faults between the engine and the s3: store."""
    served = Served(folder)
    found = faults_while_serving(model, served.uri, control, str(served.objects))
    served.server.kill()
    return found
