# SPDX-License-Identifier: Apache-2.0
"""A store that breaks costs hits, never an answer."""
from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from conftest import kvern_only


@pytest.fixture
def small_mount(tmp_path) -> Iterator[Callable[[str], str]]:
    """small_mount("8m"): the folder of a memory file system of that size; needs root."""
    folder = tmp_path / "mount"
    folder.mkdir()
    mounted = False

    def mount(size: str) -> str:
        nonlocal mounted
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "kvern-test", str(folder)],
                              capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting a file system is not allowed here: {done.stderr.strip()}")
        mounted = True
        return str(folder)

    yield mount
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def judge(found: dict) -> None:
    for name, (computed, later) in found.items():
        assert later.difference(computed) <= 1e-4, name


@kvern_only
def test_the_store_turns_read_only(run, model, small_mount):
    found = run("cases:store_trouble", model=model, store=small_mount("64m"), trouble="read-only")
    judge(found)
    assert found["old"][1].hit >= 768, "what was stored before can still be read"
    assert found["new"][1].hit == 0


@kvern_only
def test_a_read_only_mode_reads(run, model, small_mount):
    """mode read_only works on a store that nobody may write, from the start on."""
    folder = small_mount("64m")
    run("cases:ask_each", model=model, store=folder, prompts=[(1000, 1)], expect_objects=3)
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    (reply, _), (other, _) = run("cases:ask_each", model=model, store=folder, prompts=[(1000, 1), (900, 2)],
                                 options={"mode": "read_only"})
    assert reply.hit >= 768 and other.hit == 0


@kvern_only
def test_the_store_is_full(run, model, small_mount):
    for computed, later in run("cases:full_store", model=model, store=small_mount("3m")):
        assert later.difference(computed) <= 1e-4


@kvern_only
def test_the_store_is_removed_while_it_is_used(run, model, store):
    found = run("cases:store_trouble", model=model, store=str(store), trouble="removed")
    judge(found)
    assert found["old again"][1].finish == "length"
