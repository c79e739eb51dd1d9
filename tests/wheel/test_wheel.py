# SPDX-License-Identifier: Apache-2.0
"""`./run wheel` gives a wheel that works: alone in a bare environment, and beside a vLLM that it was not built with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()
# Nothing of the environment that built it: no LD_LIBRARY_PATH, no PYTHONPATH.
BARE = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
# Opens a store, puts and gets, as the connector's two halves do at their start: the nonce of an engine.
USE_A_STORE = """
import json, sys
from kvern import _core
options = json.dumps({"store": sys.argv[1]})
_core.Scheduler(options).announce("an-engine")
print(_core.Scheduler(options).describe_store())
"""


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """The command's standard output; its whole output in the failure."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd="/",
                          env=BARE if env is None else env)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> Path:
    run(ROOT / "run", "wheel", env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    (path,) = (ROOT / "build/dist").glob("kvern-*.whl")
    return path


@pytest.fixture(scope="module")
def binaries(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", wheel)
    return folder / "bin"


def test_wheel_holds_the_package_the_module_and_the_command(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("kvern/__init__.py", "kvern/vllm.py", "kvern/facts.py", "kvern/metrics.py", "kvern/plugin.py"):
        assert wanted in names
    assert any(name.startswith("kvern/_core") and name.endswith(".so") for name in names)
    assert any(name.endswith("/scripts/kvern") for name in names)
    assert not [name for name in names if name.endswith((".cc", ".a"))]


def test_wheel_needs_nothing_but_the_glibc_that_the_readme_names(wheel: Path):
    said = run(sys.executable, "-m", "auditwheel", "show", wheel, env=dict(os.environ))
    tag = re.search(r'is consistent with\s+the\s+following\s+platform\s+tag:\s+"manylinux_2_(\d+)_\w+"', said)
    assert tag, said
    assert f"manylinux_2_{tag[1]}" in wheel.name
    readme = (ROOT / "README.md").read_text()
    assert f"glibc 2.{tag[1]} or newer (`manylinux_2_{tag[1]}`" in readme
    bundled = {Path(name).name.split("-")[0].split(".")[0] for name in zipfile.ZipFile(wheel).namelist() if "kvern.libs/" in name}
    assert {"liburing", "libcrypto", "libfmt"} <= bundled


def test_bare_environment_imports_the_module_and_opens_a_store(binaries: Path, tmp_path: Path):
    assert run(binaries / "python", "-c", "import kvern; print(kvern.__version__)").strip() == VERSION
    said = run(binaries / "python", "-c", USE_A_STORE, f"file://{tmp_path}")
    assert said.startswith(f"file: {tmp_path}")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and ".kvern-tmp" not in path.parts]


def test_bare_environment_has_the_command(binaries: Path, tmp_path: Path):
    store = f"file://{tmp_path}"
    assert run(binaries / "kvern", "version").split()[1] == VERSION
    run(binaries / "kvern", "put", store, "a", ROOT / "LICENSE")
    assert run(binaries / "kvern", "get", store, "a") == (ROOT / "LICENSE").read_text()
    missing = subprocess.run([str(binaries / "kvern"), "get", store, "b"], env=BARE, capture_output=True)
    assert missing.returncode == 3, "the exit status of the command is passed on"


def test_nothing_is_loaded_from_the_system_that_a_bare_one_lacks(binaries: Path):
    code = ("import kvern._core\n"
            "print({line.split()[-1] for line in open('/proc/self/maps') if '.so' in line})")
    loaded = eval(run(binaries / "python", "-c", code))
    foreign = [path for path in loaded if re.search(r"/lib(uring|crypto|ssl|fmt|spdlog|pugixml)[-.]", path)]
    assert foreign and all("kvern.libs" in path for path in foreign), foreign


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
    found = run(sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": str(tmp_path), "VLLM_TARGET_DEVICE": "cpu"})
    assert found.strip().splitlines()[-1].startswith(str(tmp_path))
