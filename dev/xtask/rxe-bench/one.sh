#!/bin/bash
# In one machine with four processors: one.sh NAA WIRE REPEATS CALLS SECONDS
# Prints SAMPLE|SERIES|REPEAT|VALUE for each measurement.
naa=$1 wire=$2 repeats=$3 calls=$4 seconds=$5
. "$(dirname "$0")/lib.sh"
# Of the two ends of everything. The kernel's other work has the rest.
far=2 near=3 wait=spin
rxe=10.9.0.1 peer=10.9.0.2
# For clients there: who is not the first on an address of the embedded provider reaches its like only.
peer_client=10.9.0.12
messages=$((seconds * 60))

# Two namespaces without rxe.
veth_pair() {
    local i
    for i in 1 2; do ip netns add "plain$i"; done
    ip link add plain1 mtu 4200 netns plain1 type veth peer name plain2 mtu 4200 netns plain2
    for i in 1 2; do
        ip -n "plain$i" link set lo up
        ip -n "plain$i" addr add "10.9.1.$i/24" dev "plain$i"
        ip -n "plain$i" link set "plain$i" up
    done
}

# perftest: PROGRAM [OPTION ...]; its last line of figures
perftest() {
    local program=$1 i
    shift
    taskset -c $far "$program" -d rxe0 -x "$gid" -F "$@" >/tmp/perftest 2>&1 &
    # It listens on TCP port 18515.
    for ((i = 0; i < 100; i++)); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break; sleep 0.1; done
    taskset -c $near timeout 120 "$program" -d rxe0 -x "$gid" -F "$@" $rxe | grep -A1 '^ *#bytes' | tail -n 1
    wait $!
}

call() {
    local json
    kill -CONT "$calls_server"
    json=$(ping $rxe verbs $rxe)
    kill -STOP "$calls_server"
    sample call "$1" "$(field p50_us <<<"$json")"
    sample call-min "$1" "$(field min_us <<<"$json")"
}

# Its figures are of half a round trip: bytes, iterations, least, most, typical (the median).
lat() {
    local least typical
    read -r _ _ least _ typical _ <<<"$(perftest ib_write_lat -s 64 -n "$calls")"
    sample lat "$1" "$(awk "BEGIN { print 2 * $typical }")"
    sample lat-min "$1" "$(awk "BEGIN { print 2 * $least }")"
}

write() { sample write "$1" "$(goodput $rxe verbs $rxe)"; }

# Bytes, iterations, peak, average in MiB/s.
bw() {
    local average
    read -r _ _ _ average _ <<<"$(perftest ib_write_bw -s 1048576 -n "$messages")"
    sample bw "$1" "$average"
}

write_ee() { sample write-ee "$1" "$(goodput 10.9.1.2 embedded 10.9.1.1 ip netns exec plain1)"; }
write_ve() { sample write-ve "$1" "$(goodput $peer verbs $rxe)"; }
write_ev() { sample write-ev "$1" "$(goodput $rxe embedded $peer_client ip netns exec peer)"; }

# SERIES REPEAT SERVER ARGUMENT-OF-PING ...: only this server runs meanwhile
call_of() {
    local series=$1 repeat=$2 server=$3
    shift 3
    kill -CONT "$server"
    sample "$series" "$repeat" "$(ping "$@" | field p50_us)"
    kill -STOP "$server"
}
call_ee() { call_of call-ee "$1" "$plain_server" 10.9.1.2 embedded 10.9.1.1 ip netns exec plain1; }
call_ve() { call_of call-ve "$1" "$peer_server" $peer verbs $rxe; }
call_ev() { call_of call-ev "$1" "$calls_server" $rxe embedded $peer_client ip netns exec peer; }

calls() {
    serve '^serving' "$naa" serve --bind $rxe --provider verbs --wait $wait && calls_server=$server || return
    kill -STOP "$calls_server"
    each_repeat 'calls, beside ib_write_lat' call lat
    serve '^serving' ip netns exec peer "$naa" serve --bind $peer --provider embedded --wait $wait &&
        peer_server=$server || return
    kill -STOP "$peer_server"
    serve '^serving' ip netns exec plain2 "$naa" serve --bind 10.9.1.2 --provider embedded --wait $wait &&
        plain_server=$server || return
    kill -STOP "$plain_server"
    each_repeat 'calls between providers' call_ee call_ve call_ev
    stop "$calls_server" "$peer_server" "$plain_server"
}

writes() {
    local servers=()
    serve READY "$wire" sink --bind $rxe --provider verbs && servers+=("$server") || return
    each_repeat 'WRITEs, beside ib_write_bw' write bw
    serve READY ip netns exec peer "$wire" sink --bind $peer --provider embedded && servers+=("$server") || return
    serve READY ip netns exec plain2 "$wire" sink --bind 10.9.1.2 --provider embedded && servers+=("$server") || return
    each_repeat 'WRITEs between providers' write_ee write_ve write_ev
    stop "${servers[@]}"
}

# SERIES-FIRST SERIES-AGAIN LIST <JSON of `wire register`
setups() {
    local setup number=0
    grep -o "\"$3\":\[[^]]*\]" | grep -o '{[^}]*}' | while read -r setup; do
        number=$((number + 1))
        sample "$1" $number "$(field first_ms <<<"$setup")"
        sample "$2" $number "$(field again_ms <<<"$setup")"
    done
}

registrations() {
    local json
    note "measuring set-up of 4 x 64 MiB"
    register() { taskset -c $near "$wire" register --server "$1:12345" --provider verbs --repeats "$repeats" --json; }
    serve '^serving' ip netns exec peer "$naa" serve --bind $peer --provider embedded || return
    json=$(register $peer)
    stop "$server"
    setups session-first session-again sessions <<<"$json"
    setups registered-first registered-again registrations <<<"$json"
    serve '^serving' "$naa" serve --bind $rxe --provider verbs || return
    json=$(register $rxe)
    stop "$server"
    setups session-rxe-first session-rxe-again sessions <<<"$json"
}

softirqs_first
veth_pair
ip -n peer addr add $peer_client/24 dev eth-b
gid=$(gid_index $rxe) || exit
failed=0
registrations || failed=1
calls || failed=1
writes || failed=1
exit $failed
