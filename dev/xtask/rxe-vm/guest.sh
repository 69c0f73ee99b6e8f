#!/bin/bash
# In a machine: makes the network and runs the command. guest.sh a|b
#
# /run/rxe-vm is the host's control folder; its file `a/settings` or `b/settings` gives MTU, TWO and CAPTURE (empty or
# not), NETEM (empty or words), SYSCTL (KEY=VALUE ...), FOLDER and the environment.
#
# One machine:
#   eth-a  10.9.0.1/24  fd00:9::1  initial network namespace, with the rxe device rxe0 on it
#   eth-b  10.9.0.2/24  fd00:9::2  namespace `peer`, the other end of the wire, for a program with its own RoCEv2
# Two machines (TWO):
#   eth-a  10.9.0.1/24  fd00:9::1  machine a, rxe0 on it
#   eth-b  10.9.0.3/24  fd00:9::3  machine b, rxe0 on it
# rxe up to Linux 6.12 receives in the initial namespace only.
machine=$1
control=/run/rxe-vm/$machine
export PATH=/run/rxe-vm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export RXE_VM_SHARED=/run/rxe-vm/shared
. "$control/settings"

# An end of the wire in this namespace: DEVICE HOST-NUMBER
address() {
    ip link set lo up
    ip addr add "10.9.0.$2/24" dev "$1"
    ip addr add "fd00:9::$2/64" dev "$1" nodad
    ip link set "$1" up
}

one_machine() {
    ip netns add peer
    ip link add eth-a mtu "$MTU" type veth peer name eth-b mtu "$MTU" netns peer
    address eth-a 1
    export -f address
    ip netns exec peer bash -ec 'address eth-b 2'
}

of_two_machines() {
    local number=1
    [ "$machine" = a ] || number=3
    # A wire loses nothing of itself. The usual fq_codel drops what waits for more than 5 ms, as all does under emulation.
    echo pfifo_fast >/proc/sys/net/core/default_qdisc
    ip link set eth0 name "eth-$machine" mtu "$MTU"
    address "eth-$machine" $number
}

# KEY=VALUE; where the namespace `peer` has a setting of its own, there too.
set_sysctl() {
    local path
    path=/proc/sys/$(echo "${1%%=*}" | tr . /)
    [ -e "$path" ] || { echo "this kernel has no setting ${1%%=*}"; return 1; }
    echo "${1#*=}" >"$path" || { echo "the kernel does not take $1"; return 1; }
    [ -n "$TWO" ] || ip netns exec peer bash -c '[ ! -e "$1" ] || echo "$2" >"$1"' bash "$path" "${1#*=}"
}

setup() {
    mkdir -p "$FOLDER"
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 folder "$FOLDER"
    if [ -n "$TWO" ]; then of_two_machines; else one_machine; fi
    # Before rxe makes its sockets.
    local setting
    for setting in "${SYSCTL[@]}"; do
        set_sysctl "$setting"
    done
    rdma link add rxe0 type rxe netdev "eth-$machine"
    # As on a wire: no packet larger than the MTU passes the capture.
    [ -z "$CAPTURE" ] || netem --single-packets
    [ -z "$NETEM" ] || netem --here "$NETEM"
}

capture() {
    # The ring has room for so many packets of the length given here.
    tcpdump --immediate-mode -B 65536 -s $((MTU + 128)) -i eth-a -U -w "$control/pcap" >"$control/tcpdump" 2>&1 &
    tcpdump=$!
    for ((i = 0; i < 100; i++)); do
        grep -q 'listening on' "$control/tcpdump" && return
        sleep 0.1
    done
    cat "$control/tcpdump"
    return 1
}

fail() {
    echo >"$control/setup-failed"
    exit
}

# As another machine's `netem` wants it.
obey() {
    local never
    # To wait without a process for each turn, read from where nothing is ever written.
    mkfifo /run/never
    exec {never}<>/run/never
    while :; do
        read -rt 0.2 -u "$never"
        if [ -e "$control/netem" ]; then
            netem --here "$(cat "$control/netem")" >"$control/netem.said" 2>&1
            echo $? >"$control/netem.status"
            rm "$control/netem"
        fi
    done
}

ulimit -l unlimited
export MTU TWO CAPTURE machine
# Not in a condition, where -e has no effect.
(
    set -e
    setup
) >"$control/setup" 2>&1
[ $? = 0 ] || fail
if [ "$machine" = a ] && [ -n "$CAPTURE" ]; then
    capture >>"$control/setup" 2>&1 || fail
fi
if [ -n "$TWO" ]; then
    obey &
    echo >"$control/ready"
    # b ends with a, so a need not look for more than this.
    [ "$machine" = b ] || until [ -e /run/rxe-vm/b/ready ]; do sleep 0.1; done
fi
cd "$FOLDER" || exit
bash "$control/command" </dev/null >"$control/stdout" 2>"$control/stderr"
status=$?
if [ -n "$tcpdump" ]; then
    sleep 1
    kill "$tcpdump"
    wait "$tcpdump"
fi
echo "$status" >"$control/status.new"
mv "$control/status.new" "$control/status"
sync
# The host ends b when a has ended.
[ "$machine" = a ] || sleep infinity
