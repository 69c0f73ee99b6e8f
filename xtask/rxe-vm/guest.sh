#!/bin/bash
# In the machine: makes the network and runs the command. /run/rxe-vm is the host's control folder; its file
# `settings` gives MTU, CAPTURE (empty or not), FOLDER and the environment.
#
#   eth-a  10.9.0.1/24  fd00:9::1  initial network namespace, with the rxe device rxe0 on it
#   eth-b  10.9.0.2/24  fd00:9::2  namespace `peer`, the other end of the wire, for a program with its own RoCEv2
# rxe up to Linux 6.12 receives in the initial namespace only.
control=/run/rxe-vm
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
. "$control/settings"

setup() {
    set -e
    ulimit -l unlimited
    mkdir -p "$FOLDER"
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 folder "$FOLDER"
    ip link set lo up
    ip netns add peer
    ip link add eth-a mtu "$MTU" type veth peer name eth-b mtu "$MTU" netns peer
    ip addr add 10.9.0.1/24 dev eth-a
    ip addr add fd00:9::1/64 dev eth-a nodad
    ip link set eth-a up
    ip -n peer link set lo up
    ip -n peer addr add 10.9.0.2/24 dev eth-b
    ip -n peer addr add fd00:9::2/64 dev eth-b nodad
    ip -n peer link set eth-b up
    rdma link add rxe0 type rxe netdev eth-a
    if [ -n "$CAPTURE" ]; then
        # As on a wire: no packet larger than the MTU passes the capture.
        ethtool -K eth-a gso off tx-udp-segmentation off
        ip netns exec peer ethtool -K eth-b gso off tx-udp-segmentation off
    fi
}

capture() {
    tcpdump --immediate-mode -B 65536 -i eth-a -U -w "$control/pcap" >"$control/tcpdump" 2>&1 &
    tcpdump=$!
    for ((i = 0; i < 100; i++)); do
        grep -q 'listening on' "$control/tcpdump" && return
        sleep 0.1
    done
    return 1
}

if ! (setup) >"$control/setup" 2>&1 || { [ -n "$CAPTURE" ] && ! capture; }; then
    echo >"$control/setup-failed"
    exit
fi
ulimit -l unlimited
cd "$FOLDER" || exit
bash "$control/command" </dev/null >"$control/stdout" 2>"$control/stderr"
status=$?
if [ -n "$CAPTURE" ]; then
    sleep 1
    kill "$tcpdump"
    wait "$tcpdump"
fi
echo "$status" >"$control/status.new"
mv "$control/status.new" "$control/status"
sync
