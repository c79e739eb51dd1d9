# SPDX-License-Identifier: Apache-2.0
"""`./run deb` gives a Debian package that installs, runs and goes away whole; checked in a throw-away root."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()
# dpkg sets owners: root's work, or that of a user namespace.
AS_ROOT = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def run(*command: str | Path, **env: str) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd="/",
                          env={**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8", **env})
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def package() -> Path:
    run(ROOT / "run", "deb")
    (path,) = (ROOT / "build").glob("kvern_*.deb")
    return path


class Place:
    """A root folder with an empty dpkg database. Dependencies are this system's: only their names are checked."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("info", "updates", "triggers", "parts"):
            (folder / "var/lib/dpkg" / name).mkdir(parents=True)
        for name in ("status", "available"):
            (folder / "var/lib/dpkg" / name).touch()

    def dpkg(self, *words: str | Path) -> str:
        return run(*AS_ROOT, "dpkg", f"--root={self.folder}", "--force-depends,script-chrootless", *words)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")
                if not path.is_dir() and not path.is_relative_to(self.folder / "var/lib/dpkg")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "root")


def test_name_version_and_dependencies(package: Path):
    architecture = run("dpkg", "--print-architecture").strip()
    assert package.name == f"kvern_{VERSION}_{architecture}.deb"
    fields = dict(re.findall(r"^(\S+): (.+)$", run("dpkg-deb", "--field", package), re.MULTILINE))
    assert (fields["Package"], fields["Version"], fields["Architecture"]) == ("kvern", VERSION, architecture)
    names = {word.split()[0] for word in fields["Depends"].split(", ")}
    needed = {line.split()[0] for line in run("ldd", ROOT / "build/release/src/cli/kvern").splitlines() if "=>" in line}
    assert {"libc6", "libstdc++6", "liburing2", "libssl3"} <= names, fields["Depends"]
    assert any(name.startswith("liburing.so") for name in needed)


def test_lintian_has_no_complaint(package: Path):
    run("lintian", "--allow-root", "--fail-on", "error,warning", package)


def test_installed_command_runs(package: Path, place: Place, tmp_path: Path):
    place.dpkg("--install", package)
    kvern = place.folder / "usr/bin/kvern"
    assert "not found" not in run("ldd", kvern)
    assert run(kvern, "version").split()[1] == VERSION
    (tmp_path / "store").mkdir()
    run(kvern, "put", f"file://{tmp_path}/store", "a", ROOT / "LICENSE")
    assert run(kvern, "get", f"file://{tmp_path}/store", "a") == (ROOT / "LICENSE").read_text()


def test_documents_and_units_are_there(package: Path, place: Place):
    place.dpkg("--install", package)
    assert {"etc/default/kvern", "lib/systemd/system/kvern-gc.service", "lib/systemd/system/kvern-gc.timer",
            "etc/default/kvern-serve", "lib/systemd/system/kvern-serve.service", "usr/share/doc/kvern/protocol.md",
            "usr/share/man/man1/kvern.1.gz", "usr/share/doc/kvern/copyright", "usr/share/doc/kvern/README.md"} <= place.files()
    page = run("man", "-l", place.folder / "usr/share/man/man1/kvern.1.gz", MANWIDTH="200")
    for command in (["bench", "store"], ["serve"]):
        for said in run(place.folder / "usr/bin/kvern", *command, "--help").splitlines():
            assert " ".join(said.split()) in " ".join(page.split())


def test_settings_survive_removal_and_purge_leaves_nothing(package: Path, place: Place):
    place.dpkg("--install", package)
    settings = place.folder / "etc/default/kvern"
    settings.write_text('KVERN_GC_URI="file:///mnt/kv"\n')
    place.dpkg("--install", package)
    assert settings.read_text() == 'KVERN_GC_URI="file:///mnt/kv"\n'
    place.dpkg("--remove", "kvern")
    assert place.files() == {"etc/default/kvern", "etc/default/kvern-serve"}
    place.dpkg("--purge", "kvern")
    assert place.files() == set()
