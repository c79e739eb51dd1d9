# SPDX-License-Identifier: Apache-2.0
"""The tests of memory, stores, cache and command as an ordinary user who may lock 8 MiB and may not use io_uring.

Everything that runs is copied to a folder that this user can read, since the work tree may lie where nobody else may look.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("KVERN_BUILD", ROOT / "build" / "release"))
PROGRAMS = ("kvern_memory_tests", "kvern_store_tests", "kvern_cache_tests", "kvern", "kvern_confined")
MEMLOCK_BYTES = 8 << 20
USER_ID = 61234 if os.geteuid() == 0 else os.geteuid()  # nobody's
TIMEOUT_S = 120
REASONS = {"EPERM": "Operation not permitted", "ENOSYS": "Function not implemented"}


def program(name: str) -> Path:
    found = [path for path in BUILD.rglob(name) if path.is_file() and os.access(path, os.X_OK)]
    assert found, f"{BUILD} has no program {name}: ./run build"
    return found[0]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder of the user's own with the programs, HOME and TMPDIR."""
    folder = Path(subprocess.run(["mktemp", "-d", "/tmp/kvern-user-XXXXXX"], check=True, capture_output=True,
                                 text=True).stdout.strip())
    for name in PROGRAMS:
        shutil.copy2(program(name), folder / name)
    shutil.copy2(ROOT / "tests" / "cli" / "cli_test.py", folder)
    for name in ("home", "tmp", "store"):
        (folder / name).mkdir()
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER_ID, USER_ID)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def confined(place: Path, errno_name: str, *command: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([place / "kvern_confined", errno_name, str(MEMLOCK_BYTES), str(USER_ID), *map(str, command)],
                          cwd=place, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/bin:/bin", "HOME": f"{place}/home", "TMPDIR": f"{place}/tmp", "LANG": "C.UTF-8"})


@pytest.mark.parametrize("errno_name", REASONS)
def test_the_bounds_hold(place: Path, errno_name: str):
    code = ("import ctypes, os, resource\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "assert libc.syscall(425, 2, ctypes.byref(ctypes.create_string_buffer(120))) == -1\n"
            "print(os.getuid(), resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], os.strerror(ctypes.get_errno()))")
    done = confined(place, errno_name, "/usr/bin/python3", "-c", code)
    assert done.stdout.strip() == f"{USER_ID} {MEMLOCK_BYTES} {REASONS[errno_name]}", done.stderr


# The reason is looked at where a store is opened: what depends on it need not all run for the second one too.
@pytest.mark.parametrize("tests, errno_name, only", [
    ("kvern_memory_tests", "EPERM", "*"),
    ("kvern_store_tests", "EPERM", "*"),
    ("kvern_cache_tests", "EPERM", "*"),
    ("kvern_memory_tests", "ENOSYS", "*"),
    ("kvern_store_tests", "ENOSYS", "FileStore.*:Engines/StoreConformance.*/file_auto"),
])
def test_programs_pass(place: Path, tests: str, errno_name: str, only: str):
    done = confined(place, errno_name, place / tests, "--gtest_brief=1", f"--gtest_filter={only}")
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"


def test_command_passes(place: Path):
    done = confined(place, "EPERM", "/usr/bin/python3", place / "cli_test.py", "--kvern", place / "kvern")
    assert done.returncode == 0, done.stderr[-8000:]


@pytest.mark.parametrize("errno_name", REASONS)
def test_the_store_says_why_it_uses_threads(place: Path, errno_name: str):
    bench = ["bench", "store", f"file://{place}/store", "--size", "64KiB", "--bytes", "1MiB", "--rounds", "1", "--json"]
    done = confined(place, errno_name, place / "kvern", *bench)
    assert done.returncode == 0, done.stderr
    assert f"io_uring is forbidden here: {REASONS[errno_name]}" in done.stdout
    assert "reads by 8 threads" in done.stdout
    json.loads(done.stdout)


@pytest.mark.parametrize("errno_name", REASONS)
def test_asking_for_io_uring_is_an_error_that_says_why(place: Path, errno_name: str):
    done = confined(place, errno_name, place / "kvern", "ls", f"file://{place}/store?io=uring")
    assert done.returncode == 1
    assert f"io=uring is not possible: io_uring is forbidden here: {REASONS[errno_name]}: use io=auto" in done.stderr
