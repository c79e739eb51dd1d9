# SPDX-License-Identifier: Apache-2.0
"""`pip install .` gives a wheel that works: alone in a bare environment, and beside a vLLM that it was not built with."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, **env: str) -> str:
    """The command's standard output; its whole output in the failure."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd="/",
                          env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **env})
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    (path,) = folder.glob("kvern-*.whl")
    return path


def test_wheel_holds_the_package_the_module_and_the_command(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("kvern/__init__.py", "kvern/vllm.py", "kvern/facts.py", "kvern/metrics.py", "kvern/plugin.py"):
        assert wanted in names
    assert any(name.startswith("kvern/_core") and name.endswith(".so") for name in names)
    assert any(name.endswith("/scripts/kvern") for name in names)
    assert not [name for name in names if name.endswith((".cc", ".a"))]


def test_bare_environment_imports_the_module_and_runs_the_command(wheel: Path, tmp_path: Path):
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    run(binaries / "python", "-m", "pip", "install", "-q", "--no-index", wheel)
    version = (ROOT / "VERSION").read_text().strip()
    assert run(binaries / "python", "-c", "import kvern; print(kvern.__version__)").strip() == version
    assert run(binaries / "kvern", "version").split()[1] == version
    (tmp_path / "store").mkdir()
    store = f"file://{tmp_path}/store"
    run(binaries / "kvern", "put", store, "a", ROOT / "LICENSE")
    assert run(binaries / "kvern", "get", store, "a") == (ROOT / "LICENSE").read_text()


def test_environment_with_vllm_finds_the_connector(wheel: Path, tmp_path: Path):
    run(sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", tmp_path, wheel)
    code = ("from vllm.config import KVTransferConfig\n"
            "from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory as F\n"
            "import kvern, kvern.plugin\n"
            "kvern.plugin.register(); kvern.plugin.register()\n"
            "by_path = F.get_connector_class(KVTransferConfig(kv_connector='KvernConnector', kv_role='kv_both',"
            " kv_connector_module_path='kvern.vllm'))\n"
            "assert F.get_connector_class_by_name('KvernConnector') is by_path\n"
            "print(kvern.__file__)\n")
    found = run(sys.executable, "-c", code, PYTHONPATH=str(tmp_path), VLLM_TARGET_DEVICE="cpu")
    assert found.strip().splitlines()[-1].startswith(str(tmp_path))
