#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash disable=SC2154
# First process of a guest (tests/rdma/guest.py), in its initramfs: puts the root file system together and goes there.
# From below: the host's root, which nobody may write; what guest.py unpacked for guests only; memory, for what is written.
# /out is the one folder that the host sees, too. The kernel hands `guest`, this guest's name, over from its command line.

for name in insmod mkdir mount poweroff switch_root; do
  /bin/busybox ln -s busybox "/bin/$name"
done

give_up() {
  echo "init: $*"
  poweroff -f
}

share() { # TAG FOLDER OPTIONS
  mkdir -p "$2"
  mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2" || give_up "no folder of the host at $2"
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
  insmod "$module" || give_up "no module $module"
done

share host /host ro,cache=loose
share tree /tree ro,cache=loose
mkdir /memory /new
mount -t tmpfs -o size=75% memory /memory
mkdir /memory/written /memory/work
mount -t overlay -o lowerdir=/tree:/host,upperdir=/memory/written,workdir=/memory/work root /new || give_up "no root"

share out /new/out rw,cache=none
mount -t tmpfs run /new/run
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
for folder in dev sys proc; do
  mount --move "/$folder" "/new/$folder"
done
exec switch_root /new /bin/bash "/out/$guest/start.sh"
