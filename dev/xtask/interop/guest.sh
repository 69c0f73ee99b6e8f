#!/bin/bash
# In a machine of `cargo xtask rxe-vm`: carries out a plan of `cargo xtask interop`, a step a line, and prints rows:
#   ROW|LABEL|CASE|ok or reason|SECONDS|NOTE
#   HW|LABEL|COUNTER+N ...      what the kernel's device counted of errors and retries during a step
# guest.sh SUITE NAA BRIDGE PATH-MTU PLAN, where lines of PLAN are
#   suite|LABEL|HOST|SERVER|FAMILY|SET|SECONDS|NETEM|ONLY
#   rping|LABEL|CLIENT|SERVER|FAMILY|SIZE|ROUNDS
#   bridge|LABEL|WORKERS|BRIDGE|FAMILY|PLACING|EVENTS|SECONDS
# HOST, SERVER, WORKERS and BRIDGE are providers, CLIENT and SERVER of rping besides `rdma-core`.
#
# verbs and rdma-core live in the initial namespace (10.9.0.1, fd00:9::1), embedded in `peer` at the other end of the
# wire. Two embedded ends have a wire of their own between `left` and `right`: in the initial namespace rxe has the
# port. Of two machines the second serves.
suite=$1 naa=$2 bridge=$3 mtu=$4 plan=$5
work=$(mktemp -d)
port=7200

link_mtu=$(cat /sys/class/net/eth-a/mtu)
if [ -z "$TWO" ]; then
    ip netns add left
    ip netns add right
    ip link add wire mtu "$link_mtu" netns left type veth peer name wire mtu "$link_mtu" netns right
    for end in left:1 right:2; do
        ip -n ${end%:*} link set lo up
        ip -n ${end%:*} addr add 10.9.1.${end#*:}/24 dev wire
        ip -n ${end%:*} addr add fd00:9:1::${end#*:}/64 dev wire nodad
        ip -n ${end%:*} link set wire up
        # As in the other namespaces.
        for name in rmem_default rmem_max wmem_default wmem_max; do
            ip netns exec ${end%:*} sh -c "[ ! -e /proc/sys/net/core/$name ] || echo $(cat /proc/sys/net/core/$name) >/proc/sys/net/core/$name"
        done
    done
fi

now() { date +%s.%N; }
since() { echo "$1 $(now)" | awk '{ printf "%.1f", $2 - $1 }'; }

row() { # LABEL CASE START REASON
    echo "ROW|$1|$2|${4:-ok}|$(since "$3")|"
}

last_lines() {
    local log
    for log in "$@"; do
        [ ! -s "$log" ] || { echo "--- last lines of the ${log##*/}:"; tail -n 8 "$log"; }
    done
}

# Sets $ns and $address of PROVIDER, whose peer is of OTHER; $end is `near` or `far`.
place() { # PROVIDER OTHER FAMILY near|far
    local net=0 host=1
    ns=
    case $1,$2 in
        embedded,embedded)
            net=1
            if [ "$4" = near ]; then ns=left host=1; else ns=right host=2; fi ;;
        embedded,*) ns=peer host=2 ;;
        *) [ -z "$TWO" ] || [ "$4" = near ] || host=3 ;;
    esac
    if [ "$3" = 4 ]; then
        address=10.9.$net.$host
    elif [ $net = 0 ]; then
        address=fd00:9::$host
    else
        address=fd00:9:1::$host
    fi
}

# Replaces this (sub)shell.
within() { # NAMESPACE COMMAND ...
    local ns=$1
    shift
    if [ -n "$ns" ]; then exec ip netns exec "$ns" "$@"; else exec "$@"; fi
}

await_line() { # PATTERN FILE SECONDS
    local tick
    for ((tick = 0; tick < $3 * 10; tick++)); do
        grep -q "$1" "$2" 2>/dev/null && return
        sleep 0.1
    done
    return 1
}

# Waits for a process started here, at most SECONDS; its status, or 124.
await() { # PID SECONDS
    local tick
    for ((tick = 0; tick < $2 * 10; tick++)); do
        kill -0 "$1" 2>/dev/null || { wait "$1"; return; }
        sleep 0.1
    done
    kill -9 "$1" 2>/dev/null
    wait "$1" 2>/dev/null
    return 124
}

counters=/sys/class/infiniband/rxe0/ports/1/hw_counters
count() { # FILE
    local counter
    for counter in "$counters"/*; do
        case ${counter##*/} in
            sent_pkts | rcvd_pkts | rdma_sends | rdma_recvs | ack_deferred | lifespan | link_downed) ;;
            *) echo "${counter##*/} $(cat "$counter")" ;;
        esac
    done >"$1"
}

tell_counters() { # LABEL
    local counted
    count "$work/after"
    counted=$(join "$work/before" "$work/after" | awk '$3 > $2 { printf "%s+%d ", $1, $3 - $2 }')
    echo "HW|$1|$counted"
}

impair() { # on|off HOST SERVER WORDS
    local state=$1 words=$4 ns
    [ -n "$words" ] || return 0
    if [ "$2,$3" != embedded,embedded ]; then
        # shellcheck disable=SC2086
        if [ "$state" = on ]; then netem $words; else netem off; fi
        return
    fi
    for ns in left right; do
        if [ "$state" = on ]; then
            ip netns exec $ns ethtool -K wire gso off tso off tx-udp-segmentation off
            # shellcheck disable=SC2086
            ip netns exec $ns tc qdisc replace dev wire root netem limit 100000 $words
        else
            ip netns exec $ns tc qdisc delete dev wire root
            ip netns exec $ns ethtool -K wire gso on tso on tx-udp-segmentation on
        fi
    done >/dev/null 2>&1
}

run_suite() { # LABEL HOST SERVER FAMILY SET SECONDS NETEM ONLY
    local start server status server_address timeout=17 pinned=
    # Where sending again is counted: rxe's timer goes off though everything was acknowledged, so that is long; and a
    # kernel that changes processors in the middle of a message overtakes itself on a veth pair, or stands still until
    # the timer (rxe_requester misses that its packets have gone).
    if [ -z "$7" ] && [ "$5" != rest ]; then
        timeout=22 pinned='taskset -c 0'
    fi
    start=$(now)
    place "$3" "$2" "$4" far
    server_address=$address
    server=
    if [ -z "$TWO" ]; then
        (within "$ns" $pinned "$suite" serve --bind "$address" --provider "$3" >"$work/server" 2>&1) &
        server=$!
        if ! await_line '^READY' "$work/server" 60; then
            row "$1" start "$start" "the server does not start"
            last_lines "$work/server"
            kill -9 $server 2>/dev/null
            return
        fi
    fi
    impair on "$2" "$3" "$7" || row "$1" netem "$start" "netem $7 failed"
    place "$2" "$3" "$4" near
    count "$work/before"
    (within "$ns" $pinned timeout -k 5 "$6" "$suite" host --server "$server_address" --local "$address" --provider "$2" \
        --path-mtu "$mtu" --ack-timeout "$timeout" --set "$5" ${8:+--only "$8"} --label "$1" 2>"$work/host" | tee "$work/rows"
        echo "${PIPESTATUS[0]}" >"$work/status")
    status=$(cat "$work/status")
    tell_counters "$1"
    impair off "$2" "$3" "$7"
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        row "$1" 'time limit' "$start" "not done after $6 s"
    elif [ "$status" != 0 ] && ! grep -qv '|ok|' "$work/rows"; then
        row "$1" 'exit status' "$start" "$status"
    fi
    [ "$status" = 0 ] || last_lines "$work/host" "$work/server"
    [ -z "$server" ] || { kill $server; wait $server; } 2>/dev/null
}

rping_of() { # PROVIDER NAMESPACE ARGUMENTS ...
    local who=$1 ns=$2
    shift 2
    if [ "$who" = rdma-core ]; then within "$ns" rping "$@"; else within "$ns" "$naa" rping --provider "$who" "$@"; fi
}

listens() { # PROVIDER
    if [ "$1" = rdma-core ]; then
        rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.* src-addr [^ ]*:$port "
    else
        grep -q '^listening' "$work/server"
    fi
}

run_rping() { # LABEL CLIENT SERVER FAMILY SIZE ROUNDS
    local start server client reason= status seen tick server_address
    start=$(now)
    port=$((port + 1))
    place "$3" "$2" "$4" far
    server_address=$address
    (rping_of "$3" "$ns" -s -a "$address" -p $port -S "$5" -C "$6" -V -v >"$work/server" 2>&1) &
    server=$!
    for ((tick = 0; tick < 300; tick++)); do
        ! listens "$3" || break
        sleep 0.1
    done
    place "$2" "$3" "$4" near
    (rping_of "$2" "$ns" -c -a "$server_address" -p $port -S "$5" -C "$6" -V -v >"$work/client" 2>&1) &
    client=$!
    await $client 90 || { status=$?; reason="client exit status $status"; }
    await $server $((${#reason} ? 0 : 15))
    status=$?
    # rdma-core's server has no meaningful exit status once the client has gone; that it ends is what counts.
    if [ -z "$reason" ] && { [ $status = 124 ] || { [ "$3" != rdma-core ] && [ $status != 0 ]; }; }; then
        reason="server exit status $status"
    fi
    seen=$(grep -c 'rdma-ping-' "$work/client")
    [ -n "$reason" ] || [ "$seen" -ge "$6" ] || reason="$seen of $6 rounds printed"
    row "$1" "rping, $5 B" "$start" "$reason"
    [ -z "$reason" ] || last_lines "$work/client" "$work/server"
}

# Two workers of PROVIDER, one of the embedded provider, and one of the bridge's machine.
run_bridge() { # LABEL WORKERS BRIDGE FAMILY PLACING EVENTS SECONDS
    local start status bind where worker embedded into=
    start=$(now)
    place "$3" "$2" "$4" far
    bind=$address where=$ns
    place "$2" "$3" "$4" near
    worker=$2@$address
    # Not by `ip netns exec`, whose /sys has no device: the workers' are to have one.
    [ -z "$where" ] || { into="nsenter --net=/run/netns/$where" worker=$worker@.init; }
    # Towards the kernel an embedded worker wants an address's RoCE port for itself; towards an embedded bridge any port does.
    place embedded verbs "$4" near
    embedded=embedded@$address@$ns
    # rxe_requester, as in run_suite: on one processor it does not stand still.
    ($into taskset -c 0 timeout -k 5 "$7" "$bridge" stream --bind "$bind" --provider "$3" --placing "$5" -n "$6" \
        --worker "$worker" --worker "$worker" --worker "$embedded" --worker local --ack-timeout 19 --label "$1" \
        2>"$work/bridge" | tee "$work/rows"
        echo "${PIPESTATUS[0]}" >"$work/status")
    status=$(cat "$work/status")
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        row "$1" 'time limit' "$start" "not done after $7 s"
    elif [ ! -s "$work/rows" ]; then
        row "$1" 'exit status' "$start" "$status"
    fi
    [ "$status" = 0 ] || last_lines "$work/bridge"
}

while IFS='|' read -r kind label a b family c d e f; do
    echo "-- $label"
    rm -f "$work"/*
    case $kind in
        suite) run_suite "$label" "$a" "$b" "$family" "$c" "$d" "$e" "$f" ;;
        rping) run_rping "$label" "$a" "$b" "$family" "$c" "$d" ;;
        bridge) run_bridge "$label" "$a" "$b" "$family" "$c" "$d" "$e" ;;
    esac
done <"$plan"
exit 0
