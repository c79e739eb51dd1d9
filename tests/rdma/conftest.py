# SPDX-License-Identifier: Apache-2.0
"""Options of the tests with RDMA. `--pair` runs those with two guests, and only them: `./run test rdma-pair`."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pair", action="store_true", help="the tests with two guests instead of the others")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "pair: needs two guests, runs in `./run test rdma-pair` only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    others = [item for item in items if bool(item.get_closest_marker("pair")) != config.getoption("--pair")]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
