#!/bin/bash
# In the machine of `cargo xtask rxe-vm`: rping against rping, one line `ROW|NAME|ok or reason|SECONDS` for each row.
# rping-matrix.sh NAA SIZES ROUNDS PATH-MTU; NAA empty: rdma-core's rping stands in for ours.
naa=$1 sizes=$2 rounds=$3 mtu=$4
kernel4=10.9.0.1 kernel6=fd00:9::1 ours4=10.9.0.2 ours6=fd00:9::2
port=7200
work=$(mktemp -d)

kernel() { exec rping "$@"; }
ours() { exec ip netns exec peer "$naa" rping "$@"; }
if [ -z "$naa" ]; then
    ours4=$kernel4 ours6=$kernel6
    ours() { exec rping "$@"; }
fi

address() { # SIDE FAMILY
    local name=$1$2
    echo "${!name}"
}

now() { date +%s.%N; }

report() { # NAME START REASON
    printf "\n"; echo "ROW|$1|${3:-ok}|$(echo "$2 $(now)" | awk '{ printf "%.1f", $2 - $1 }')"
    if [ -n "$3" ]; then
        for log in "$work"/server "$work"/client; do
            [ ! -s "$log" ] || { echo "--- last lines of the ${log##*/}:"; tail -n 5 "$log"; }
        done
    fi
    rm -f "$work"/*
    port=$((port + 1))
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

serve() { # SIDE FAMILY SIZE ROUNDS; sets $server
    local addr
    addr=$(address "$1" "$2")
    ("$1" -s -a "$addr" -p $port -S "$3" -C "$4" -V -v >"$work/server" 2>&1) &
    server=$!
    # A busy host may take seconds to start a program under emulation.
    local tick
    for ((tick = 0; tick < 200; tick++)); do
        ! listens "$1" || return 0
        sleep 0.1
    done
}

listens() { # SIDE
    if [ "$1" = ours ] && [ -n "$naa" ]; then
        grep -q '^listening' "$work/server"
    else
        rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.* src-addr [^ ]*:$port "
    fi
}

call() { # SIDE SERVER-SIDE FAMILY SIZE ROUNDS; sets $client
    local addr
    addr=$(address "$2" "$3")
    ("$1" -c -a "$addr" -p $port -S "$4" -C "$5" -V -v >"$work/client" 2>&1) &
    client=$!
}

# Data both ways; the client disconnects.
transfer() { # CLIENT SERVER FAMILY SIZE
    local start reason= status seen
    start=$(now)
    serve "$2" "$3" "$4" "$rounds"
    call "$1" "$2" "$3" "$4" "$rounds"
    await "$client" 60 || { status=$?; reason="client exit status $status"; }
    # After a failure there is nothing to wait for.
    await "$server" $((${#reason} ? 0 : 15))
    status=$?
    # rdma-core's server has no meaningful exit status once the client has gone; that it ends is what counts.
    if [ -z "$reason" ] && { [ $status = 124 ] || { [ "$2" = ours ] && [ -n "$naa" ] && [ $status != 0 ]; }; }; then
        reason="server exit status $status"
    fi
    seen=$(grep -c 'rdma-ping-' "$work/client")
    [ -n "$reason" ] || [ "$seen" -ge "$rounds" ] || reason="$seen of $rounds rounds printed"
    report "$1 -> $2, IPv$3, path MTU $mtu, $4 B" "$start" "$reason"
}

# Nobody listens: the client must learn it, soon.
refused() { # CLIENT SERVER FAMILY
    local start reason= status says=refused
    [ "$1" = ours ] && [ -n "$naa" ] || says=REJECTED
    start=$(now)
    # The one service keeps the other side's stack up; the client asks at another port.
    serve "$2" "$3" 64 1
    port=$((port + 1))
    call "$1" "$2" "$3" 64 1
    await "$client" 15
    status=$?
    if [ $status = 0 ] || [ $status = 124 ]; then
        reason="client exit status $status"
    elif ! grep -qi $says "$work/client"; then
        reason="error does not say $says"
    fi
    kill -9 "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    report "$1 -> $2, IPv$3, refused" "$start" "$reason"
}

# The server goes first, in the middle of endless rounds: the client must end, and say so by its exit status.
server_leaves() { # CLIENT SERVER FAMILY
    local start reason= status
    start=$(now)
    serve "$2" "$3" 64 0
    call "$1" "$2" "$3" 64 0
    # A busy machine takes its time.
    for _ in $(seq 300); do
        grep -q 'rdma-ping-' "$work/client" && break
        sleep 0.1
    done
    grep -q 'rdma-ping-' "$work/client" || reason="no round before the server left"
    # `ip netns exec` and the subshells replace themselves: the number is the server's own.
    kill -INT "$server" 2>/dev/null
    sleep 0.5
    kill -TERM "$server" 2>/dev/null
    await "$server" 10 || true
    await "$client" 30
    status=$?
    [ $status != 124 ] || reason="client did not end in 30 s"
    report "$1 -> $2, IPv$3, server disconnects first" "$start" "$reason"
}

for family in 4 6; do
    for roles in 'ours kernel' 'kernel ours'; do
        for size in $sizes; do
            transfer $roles $family "$size"
        done
        refused $roles $family
        server_leaves $roles $family
    done
done
