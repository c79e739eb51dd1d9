# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the engine tests: the host process, a model, a store."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(HERE)]

from engine_host import read_message, write_message  # noqa: E402
from models.llama import PRESETS, write_model  # noqa: E402
from serving import PYTHON, engine_env  # noqa: E402

HOST_START_TIMEOUT_S = 180
CASE_TIMEOUT_S = 90
LOG_TAIL_LINES = 30
LOG_LINE_CHARACTERS = 240
NAIVE = os.environ.get("KVERN_TEST_CONNECTOR") == "naive"
kvern_only = pytest.mark.skipif(NAIVE, reason="the naive connector does not promise this")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also the tests that are marked slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: runs in `./run test kinds` only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow", default=False):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


class Host:
    """engine_host.py and what it needs in its environment."""

    def __init__(self, logs: Path):
        self.logs = logs
        logs.mkdir(parents=True, exist_ok=True)
        python_path = os.pathsep.join([engine_env()["PYTHONPATH"], str(HERE)])
        env = engine_env(extra={"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONPATH": python_path})
        self.process = subprocess.Popen([str(PYTHON), str(HERE / "engine_host.py")], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=(logs / "host.log").open("w"))
        self.receive(HOST_START_TIMEOUT_S)

    def receive(self, timeout_s: float) -> object:
        reply = read_message(self.process.stdout.fileno(), time.monotonic() + timeout_s)
        if "trouble" in reply:
            raise AssertionError(reply["trouble"])
        return reply["value"]

    def call(self, function: Callable | str, log: Path, timeout_s: float, **arguments):
        """Runs `module:name` (or a module-level function) with these arguments in a fresh child."""
        name = function if isinstance(function, str) else f"{function.__module__}:{function.__name__}"
        write_message(self.process.stdin.fileno(),
                      {"function": name, "arguments": arguments, "timeout_s": timeout_s, "log": str(log)})
        try:
            return self.receive(timeout_s + 30)
        except AssertionError as error:
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            tail = [line[:LOG_LINE_CHARACTERS] for line in lines[-LOG_TAIL_LINES:]]
            raise AssertionError("\n".join([str(error), f"-- the end of {log}", *tail])) from None

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    host = Host(ROOT / "build" / "logs" / "engine-cases")
    yield host
    host.close()


@pytest.fixture(scope="session")
def model() -> str:
    """The small float32 model with two KV heads: 4 KiB of KV cache a token, 1 MiB a chunk of 256."""
    return str(write_model(ROOT / "build" / "models" / "test-float32", PRESETS["test"]))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.fixture
def run(host: Host, request: pytest.FixtureRequest) -> Callable:
    """run("cases:name", argument=...): the function's value, computed in a child that holds a vLLM of its own."""
    log = host.logs / f"{request.node.name.replace('/', '-')}.log"
    log.unlink(missing_ok=True)

    def call(function: str, timeout_s: float = CASE_TIMEOUT_S, **arguments):
        return host.call(function, log, timeout_s, **arguments)

    return call
