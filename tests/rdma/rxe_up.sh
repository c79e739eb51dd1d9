#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: rxe_up.sh ADDRESS/BITS [CARD]
# In a guest: makes the RDMA device rxe0 on CARD, and waits until the device has ADDRESS. Without CARD it lies on a dummy,
# which is enough for everything inside one guest: soft-RoCE hands packets to itself over in the kernel.
set -euo pipefail

address=$1
card=${2:-dummy0}
wait_s=10

modprobe -a rdma_rxe rdma_ucm
if [[ $card == dummy0 ]]; then
  modprobe dummy numdummies=1
else
  modprobe virtio_net
fi
ip link set lo up
ip link set "$card" mtu "${MTU:-4200}" up # room for RoCE's 4096
ip addr add "$address" dev "$card"
rdma link add rxe0 type rxe netdev "$card"

# The kernel enters addresses as GIDs some time later. An IPv4 address is the end of one, after ffff.
IFS=./ read -r a b c d _ <<<"$address"
gid=$(printf 'ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d")
end=$((SECONDS + wait_s))
until grep -qs "$gid\$" /sys/class/infiniband/rxe0/ports/1/gids/*; do
  ((SECONDS < end)) || {
    echo "rxe0 did not get the address $address" >&2
    exit 1
  }
  sleep 0.05
done
