# What rxe-bench's scripts share. They set: naa, wire (programs), repeats, calls, seconds,
# far and near (processors), wait (how calls wait).

note() { echo "$*" >&2; }

sample() { # SERIES REPEAT VALUE
    if [[ $3 =~ ^[0-9.]+(e[+-]?[0-9]+)?$ ]]; then echo "SAMPLE|$1|$2|$3"; else note "rxe-bench: no $1 in repeat $2: $3"; fi
}

# A number of a JSON object in one line: NAME <OBJECT
field() { sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p"; }

# What runs as softirqs must not wait for a spinning program's time slice, which is a tick of 4 ms: both sides of a
# comparison would mostly measure that.
softirqs_first() {
    local pid
    for pid in $(pgrep ksoftirqd); do chrt -f -p 50 "$pid"; done
}

# The index of an address's RoCE v2 GID on rxe0.
gid_index() { # IPV4
    local hex i
    # shellcheck disable=SC2086
    hex=$(printf '%02x%02x:%02x%02x' ${1//./ })
    for i in {0..15}; do
        if [[ $(cat /sys/class/infiniband/rxe0/ports/1/gids/$i 2>/dev/null) == *:ffff:"$hex" ]] &&
            [ "$(cat /sys/class/infiniband/rxe0/ports/1/gid_attrs/types/$i)" = 'RoCE v2' ]; then
            echo $i
            return
        fi
    done
    note "rxe0 has no GID of $1"
    return 1
}

# Until a file has a line: FILE PATTERN
await() {
    local i
    for ((i = 0; i < 300; i++)); do
        grep -q "$2" "$1" 2>/dev/null && return
        sleep 0.1
    done
    note "rxe-bench: nothing was ready: $(tail -n 3 "$1")"
    return 1
}

# A server in the background, ready when it returns; its number is in $server. ready-PATTERN COMMAND ...
serve() {
    local log=/tmp/serve.$RANDOM$RANDOM pattern=$1
    shift
    taskset -c "$far" "$@" >"$log" 2>&1 &
    server=$!
    await "$log" "$pattern"
}

# Also those that are stopped.
stop() { # PID ...
    kill -KILL "$@"
    wait "$@"
    true
} 2>/dev/null

# Everything of one repeat, in an order that turns around: REPEAT FUNCTION ...
take_turns() {
    local repeat=$1 i
    shift
    if ((repeat % 2)); then
        for ((i = 1; i <= $#; i++)); do "${!i}" "$repeat"; done
    else
        for ((i = $#; i > 0; i--)); do "${!i}" "$repeat"; done
    fi
}

# ADDRESS PROVIDER LOCAL [MORE ...]: calls of 64 bytes, as one JSON object
ping() {
    local address=$1 provider=$2 local=$3
    shift 3
    "$@" taskset -c "$near" "$naa" ping --server "$address" --provider "$provider" --local "$local" \
        --wait "$wait" --timeout 30 -c "$calls" --json 2>/dev/null
}

# ADDRESS PROVIDER LOCAL [MORE ...]: MiB/s of WRITEs
goodput() {
    local address=$1 provider=$2 local=$3
    shift 3
    "$@" taskset -c "$near" "$wire" write --to "$address:7471" --provider "$provider" --local "$local" \
        --seconds "$seconds" --json | field mib_per_second
}

each_repeat() { # WHAT FUNCTION ...
    local repeat
    note "measuring $1"
    shift
    for ((repeat = 1; repeat <= repeats; repeat++)); do take_turns $repeat "$@"; done
}
