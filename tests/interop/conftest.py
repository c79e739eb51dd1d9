# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the interop tests: servers, buckets, bytes.

`--all` adds what `./run test interop` runs and `./run test` does not: tests marked `long`, and those that need the
programs of Debian. Tests share servers and never buckets, so any order will do.
"""
from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import servers  # noqa: E402

NUMBERS = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also the tests that are marked long")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: runs in `./run test interop` only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.KvernServe]:
    """One `kvern serve` over a folder for all tests that neither stop it nor break it."""
    server = servers.KvernServe(tmp_path_factory.mktemp("serve"), "--domain", "s3.test")
    yield server
    server.process.check()
    assert server.stop() == 0, server.process.tail()


@pytest.fixture(scope="session")
def serve_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.KvernServe]:
    server = servers.KvernServe(tmp_path_factory.mktemp("serve-tls"), tls=True)
    yield server
    server.process.check()
    assert server.stop() == 0, server.process.tail()


@pytest.fixture
def own_serve(tmp_path: Path) -> Iterator[Callable[..., servers.KvernServe]]:
    """own_serve("--memory", "64MiB", store=...): a server of the test's own, ended after it."""
    started: list[servers.KvernServe] = []

    def start(*options: str, **settings) -> servers.KvernServe:
        started.append(servers.KvernServe(tmp_path / f"serve-{len(started)}", *options, **settings))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def bucket_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return f"test-{next(NUMBERS)}-{random.randrange(1 << 32):08x}"


@pytest.fixture
def bucket(serve: servers.KvernServe, bucket_name: str) -> str:
    serve.boto3().create_bucket(Bucket=bucket_name)
    return bucket_name


@pytest.fixture
def bytes_of() -> Callable[[int], bytes]:
    """Random bytes, the same for the same test run's seed, which a failure shows."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed).randbytes
