# SPDX-License-Identifier: Apache-2.0
"""Guests with real RDMA verbs and no network card: an emulated PC whose kernel has soft-RoCE (rdma_rxe), under QEMU.

A guest has no disk. Its root is this host's file system, read only, under a layer of memory that is gone with it: what is
built here runs there at the same path, as root. It shows what is right, never what is fast: all of it is emulated, and
the processor is one without AVX. Nothing is installed for it but QEMU and some tools; its kernel and the NFS server are
Debian packages that are only unpacked, into build/rdma. No root, no KVM and no network of the host is needed.

    ended = Guest(folder).run(script({"rxe0": "tests/rdma/rxe_up.sh 10.77.0.1/24", "devices": "ibv_devices"}), timeout_s=60)
    assert "rxe0" in ended.passed("devices")

Standard library only.
"""
from __future__ import annotations

import contextlib
import json
import lzma
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "build" / "rdma"
INIT = Path(__file__).with_name("init.sh")
KERNEL = "linux-image-amd64"  # depends on the package of the kernel itself
UNPACKED = ("nfs-kernel-server",)  # with what it needs and this host lacks; installed, they would start daemons
FIRST_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")  # what init.sh needs

MEMORY_MIB = 2048  # taken from the host as it is used
BOOT_S = 60.0  # it takes 3
BOOTS_MAX = 2  # one in some dozens hangs under emulation
TAIL_LINES = 40

START = """\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
export GUEST={name} OUT=/out/{name}
cd {root}
exec </dev/null >$OUT/output 2>&1
touch $OUT/up
ulimit -l unlimited
bash -c {command}
echo $? >$OUT/status
sync
busybox poweroff -f
"""


# ----------------------------------------------------------------------------------------------------- making the guest


def said(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a program prints; its whole output in the failure."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def kernel_package() -> str:
    """The package of Debian's current kernel."""
    depends = re.findall(r"Depends: (linux-image-\S+)", said("apt-cache", "depends", "--important", KERNEL))
    assert depends, f"apt does not know {KERNEL}: apt-get update"
    return depends[0]


def missing_here(packages: tuple[str, ...]) -> list[str]:
    """These packages and what they need, without what this host has installed."""
    return re.findall(r"^Inst (\S+)", said("apt-get", "install", "--simulate", "--no-upgrade", "--no-install-recommends",
                                           *packages), re.MULTILINE)


def unpack(packages: list[str], tree: Path) -> None:
    """Downloads packages and puts their files below `tree`, whose folders are links where Debian's are."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    with tempfile.TemporaryDirectory() as folder:
        said("apt-get", "download", *packages, cwd=Path(folder))
        for package in Path(folder).glob("*.deb"):
            said("sh", "-c", 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink --no-same-owner -C "$1"',
                 package, tree)


def uncompressed(kernel: bytes) -> bytes:
    """The kernel that is inside Debian's: to unpack it under emulation would take five seconds of every boot."""
    for found in re.finditer(rb"\xfd7zXZ\0", kernel):
        with contextlib.suppress(lzma.LZMAError):
            inner = lzma.LZMADecompressor().decompress(kernel[found.start():])
            if inner.startswith(b"\x7fELF"):
                return inner
    return kernel  # compressed in another way: QEMU starts that as well


def write_initramfs(tree: Path, version: str, target: Path) -> None:
    """init.sh, the modules that it needs in their order, and busybox."""
    modules: dict[str, None] = {}
    for module in FIRST_MODULES:
        shown = said("modprobe", "--dirname", tree, "--set-version", version, "--show-depends", module)
        modules |= dict.fromkeys(re.findall(r"^insmod (\S+)", shown, re.MULTILINE))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("bin", "dev", "modules", "proc", "sys"):
            (folder / part).mkdir()
        shutil.copy2(shutil.which("busybox"), folder / "bin" / "busybox")
        shutil.copy2(INIT, folder / "init")
        (folder / "init").chmod(0o755)
        for number, module in enumerate(modules):
            shutil.copy2(module, folder / "modules" / f"{number:02}-{Path(module).name}")
        said("sh", "-c", 'find . | cpio -o -H newc --quiet >"$0"', target, cwd=folder)


def make() -> None:
    """Makes the kernel, the initramfs and the tree of unpacked packages, unless they are there for this kernel."""
    kernel = kernel_package()
    stamp, inputs = MADE / "made", json.dumps([kernel, UNPACKED, FIRST_MODULES, INIT.read_text()])
    if stamp.exists() and stamp.read_text() == inputs:
        return
    shutil.rmtree(MADE, ignore_errors=True)
    tree = MADE / "tree"
    unpack([kernel, *missing_here(UNPACKED)], tree)
    version = kernel.removeprefix("linux-image-")
    said("depmod", "-b", tree, version)
    (MADE / "kernel").write_bytes(uncompressed((tree / "boot" / f"vmlinuz-{version}").read_bytes()))
    write_initramfs(tree, version, MADE / "initramfs")
    stamp.write_text(inputs)


# ------------------------------------------------------------------------------------------------------ running guests


def script(steps: dict[str, str]) -> str:
    """A command that does shell commands one after another, each under its name and whatever became of those before."""
    return "\n".join([". tests/rdma/steps.sh", *(f"step {shlex.quote(name)} {shlex.quote(command)}" for name, command in steps.items())])


@dataclass
class Step:
    """How a step of a script ended."""

    status: int
    seconds: float
    output: str


@dataclass
class Ended:
    """How a guest's command ended."""

    status: int | None  # None: it did not, until its time was over or the guest died
    output: str
    console: str
    folder: Path  # what the command saw as $OUT

    def check(self) -> None:
        assert self.status == 0, f"the command ended with {self.status}\n{self.tail()}"

    def step(self, name: str) -> Step:
        """A step by its name. It is a failure if the guest did not come to its end."""
        lines = self.folder / "steps.jsonl"
        for line in map(json.loads, lines.read_text().splitlines() if lines.exists() else []):
            if line["step"] == name:
                return Step(line["status"], line["seconds"], (self.folder / f"{name}.log").read_text(errors="replace"))
        raise AssertionError(f"the guest did not come to the end of step {name}\n{self.tail()}")

    def passed(self, name: str) -> str:
        """The output of a step that must have gone well."""
        step = self.step(name)
        assert step.status == 0, f"step {name} ended with {step.status}\n{step.output}\n{self.tail()}"
        return step.output

    def tail(self) -> str:
        return "\n".join(["-- the end of the output", *self.output.splitlines()[-TAIL_LINES:],
                          "-- the end of the console", *self.console.splitlines()[-TAIL_LINES:]])


class Machine:
    """One emulated PC that runs a command and is switched off. Its $OUT is a folder by its name in `together`, its /out."""

    def __init__(self, together: Path, name: str, command: str, devices: list[str], descriptors: tuple[int, ...] = ()):
        self.folder = together / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "start.sh").write_text(START.format(name=name, root=shlex.quote(str(ROOT)), command=shlex.quote(command)))
        with (self.folder / "qemu.log").open("wb") as log:
            self.popen = subprocess.Popen(
                ["qemu-system-x86_64", *self.hardware(), *self.exported(host=Path("/"), tree=MADE / "tree"),
                 *self.exported(out=together, readonly="off"), *devices, "-kernel", str(MADE / "kernel"),
                 "-initrd", str(MADE / "initramfs"), "-append",
                 f"console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check cryptomgr.notests guest={name}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=descriptors)

    def hardware(self) -> list[str]:
        """A processor without `rep movsb`, which is slow under emulation and what soft-RoCE copies with where it is there."""
        return ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "pc", "-accel", "tcg,thread=multi",
                "-cpu", "Nehalem,+rdrand", "-smp", "2", "-m", str(MEMORY_MIB), "-serial", f"file:{self.folder}/console"]

    @staticmethod
    def exported(readonly: str = "on", **folders: Path) -> list[str]:
        """Folders of the host that the guest mounts by these names."""
        options = []
        for tag, path in folders.items():
            options += ["-fsdev", f"local,id={tag},path={path},security_model=none,readonly={readonly},multidevs=remap",
                        "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        return options

    def is_up(self) -> bool:
        return (self.folder / "up").exists()

    def is_off(self) -> bool:
        return self.popen.poll() is not None

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def ended(self) -> Ended:
        status = self.text("status").strip()
        return Ended(int(status) if status else None, self.text("output"), self.text("qemu.log") + self.text("console"), self.folder)


def wait_until(ready: Callable[[], bool], timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not ready() and time.monotonic() < end:
        time.sleep(0.05)


def ran(machines: list[Machine], timeout_s: float) -> bool:
    """Waits until machines are off, or until `timeout_s` after all were up. False: one did not come up."""
    try:
        wait_until(lambda: all(one.is_up() or one.is_off() for one in machines), BOOT_S)
        if not all(one.is_up() for one in machines):
            return False
        wait_until(lambda: all(one.is_off() for one in machines), timeout_s)
        return True
    finally:
        for one in machines:
            one.kill()


def run_machines(start: Callable[[], list[Machine]], timeout_s: float) -> list[Ended]:
    """Starts machines and gives how their commands ended. Where one does not come up, all are started once more."""
    for _ in range(BOOTS_MAX):
        machines = start()
        if ran(machines, timeout_s):
            return [one.ended() for one in machines]
    raise AssertionError("\n".join(["a guest does not boot", *(one.ended().tail() for one in machines)]))


class Guest:
    """A guest whose /out is `folder`: what its command writes to $OUT is in folder/guest."""

    def __init__(self, folder: Path):
        self.folder = folder
        make()

    def run(self, command: str, timeout_s: float) -> Ended:
        """Boots, runs a shell command at the root of the source tree, and switches off."""
        return run_machines(lambda: [Machine(self.folder, "guest", command, [])], timeout_s)[0]


class Pair:
    """Two guests, a and b, with a cable between their cards eth0. Both see `folder` as /out, and each other's $OUT in it."""

    def __init__(self, folder: Path):
        self.folder = folder
        make()

    def run(self, command_a: str, command_b: str, timeout_s: float) -> tuple[Ended, Ended]:
        a, b = run_machines(lambda: self.start(command_a, command_b), timeout_s)
        return a, b

    def start(self, command_a: str, command_b: str) -> list[Machine]:
        with contextlib.ExitStack() as stack:
            ends = [stack.enter_context(end) for end in socket.socketpair()]
            return [Machine(self.folder, name, command, self.card(number, end), (end.fileno(),))
                    for number, (name, command, end) in enumerate([("a", command_a, ends[0]), ("b", command_b, ends[1])], 1)]

    @staticmethod
    def card(number: int, cable: socket.socket) -> list[str]:
        return ["-netdev", f"stream,id=cable,addr.type=fd,addr.str={cable.fileno()}",
                "-device", f"virtio-net-pci,netdev=cable,mac=52:54:00:00:00:{number:02}"]
