# SPDX-License-Identifier: Apache-2.0
"""Ceph on one machine, as small as it gets: a monitor, a manager, one store in memory, one gateway. Needs root."""
from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

from servers import ACCESS, SECRET, Endpoint, free_ports, wait_until

COMMAND_S = 90
USER = ("--setuser", "root", "--setgroup", "root")
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor_port}
public addr = 127.0.0.1
keyring = {folder}/keyring
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
pid file = {folder}/$type.pid
log file = {folder}/$name.log
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw data = {folder}/rgw
"""


class Ceph:
    """Its daemons go into the background and leave their process ids in files."""

    def __init__(self, folder: Path):
        self.folder = folder
        for part in ("mon", "mgr", "osd", "rgw", "run"):
            (folder / part).mkdir(parents=True)

    def run(self, *command: str | Path) -> None:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=COMMAND_S,
                              env={**os.environ, "CEPH_CONF": str(self.folder / "ceph.conf")}, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def start(self) -> Endpoint:
        folder, fsid, osd = self.folder, uuid.uuid4(), uuid.uuid4()
        port, monitor_port = free_ports(2)
        (folder / "ceph.conf").write_text(CONFIGURATION.format(fsid=fsid, folder=folder, port=port, monitor_port=monitor_port))
        keyring, map_ = folder / "keyring", folder / "monmap"
        self.run("ceph-authtool", "-C", keyring, "-n", "mon.", "--gen-key", "--cap", "mon", "allow *")
        for name in ("client.admin", "mgr.x", "osd.0", "client.rgw.a"):
            rights = [part for who in ("mon", "osd", "mgr") for part in ("--cap", who, "allow *")]
            self.run("ceph-authtool", keyring, "-n", name, "--gen-key", *rights)
        self.run("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{monitor_port}]", "--fsid", str(fsid), map_)
        self.run("ceph-mon", *USER, "-i", "a", "--mkfs", "--monmap", map_, "--keyring", keyring)
        self.run("ceph-mon", *USER, "-i", "a")
        self.run("ceph-mgr", *USER, "-i", "x")
        self.run("ceph", "osd", "new", str(osd))
        self.run("ceph-osd", *USER, "-i", "0", "--mkfs", "--osd-uuid", str(osd))
        self.run("ceph-osd", *USER, "-i", "0")
        self.run("radosgw", *USER, "-n", "client.rgw.a")
        self.run("radosgw-admin", "user", "create", "--uid", "test", "--display-name", "Test", "--access-key", ACCESS,
                 "--secret-key", SECRET)
        return Endpoint("127.0.0.1", port)

    def kill(self) -> None:
        """Only what it started: the process ids stand in its folder."""
        pids = [int(path.read_text()) for path in self.folder.glob("*.pid") if path.read_text().strip().isdigit()]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "Ceph ends", 30)
        time.sleep(0.1)
