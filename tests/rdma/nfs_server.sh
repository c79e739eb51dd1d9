#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: nfs_server.sh FOLDER PORT
# In a guest: makes FOLDER an ext4 on a disk of memory and exports it over RDMA on PORT. NFS 4 mounts it as /, NFS 3 by
# its path. The daemons' packages are only unpacked, so their users and folders are made here.
set -euo pipefail

folder=$1
port=$2
disk_kib=262144

modprobe -a nfsd rpcrdma ext4
modprobe brd rd_nr=1 rd_size=$disk_kib
mkfs.ext4 -q -b 4096 -O ^has_journal /dev/ram0 # blocks with room for attributes
mkdir -p "$folder"
mount /dev/ram0 "$folder"
mount -t nfsd nfsd /proc/fs/nfsd

echo '_rpc:x:900:65534::/run/rpcbind:/usr/sbin/nologin' >>/etc/passwd
mkdir -p /run/rpcbind
rpcbind -w
rpc.statd # for the locks of NFS 3
echo "$folder *(rw,no_root_squash,no_subtree_check,insecure,async,fsid=0)" >/etc/exports
exportfs -ar
# No client holds files or locks of an earlier server: let none wait a minute for it.
echo 1 >/proc/sys/fs/nfs/nlm_grace_period
rpc.nfsd --rdma="$port" 4
echo Y >/proc/fs/nfsd/v4_end_grace
rpc.mountd
