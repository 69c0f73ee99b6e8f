#!/bin/bash
# In both of two machines on a wire: two.sh NAA WIRE REPEATS CALLS SECONDS
# a measures and prints SAMPLE|SERIES|REPEAT|VALUE; b serves, with the provider that a asks for in a file.
naa=$1 wire=$2 repeats=$3 calls=$4 seconds=$5
. "$(dirname "$0")/lib.sh"
# Who spins here takes the host's processors from what carries packets between the machines.
far=1 near=1 wait=adaptive
here=10.9.0.1 there=10.9.0.3
address=$here
# Set by the machine's first program.
[ "$machine" = a ] || address=$there
device=eth-$machine

# verbs: the interface has rxe0. embedded: it is in a namespace where rxe has no sockets.
set_stage() { # PROVIDER
    if [ "$1" = embedded ]; then
        rdma link delete rxe0 && ip link set "$device" netns plain &&
            ip -n plain addr add "$address/24" dev "$device" && ip -n plain link set "$device" up
    else
        ip netns exec plain ip link set "$device" netns 1 && ip addr add "$address/24" dev "$device" &&
            ip link set "$device" up && rdma link add rxe0 type rxe netdev "$device"
    fi
}

# What a program of a provider runs in, on either machine: PROVIDER
within() {
    prefix=()
    [ "$1" != embedded ] || prefix=(ip netns exec plain)
}

# Sees to it that this machine is as wanted: PROVIDER
change_to() {
    [ "$stage" = "$1" ] || set_stage "$1" || return
    stage=$1
    within "$1"
}

# For the other machine: NAME TEXT
tell() {
    echo "$2" >"$RXE_VM_SHARED/$1.new" && mv "$RXE_VM_SHARED/$1.new" "$RXE_VM_SHARED/$1"
}

# As b: serves what is asked for, until the machine ends.
obey() {
    local wanted told='' provider what
    while :; do
        wanted=$(cat "$RXE_VM_SHARED/want" 2>/dev/null)
        if [ "$wanted" = "$told" ]; then sleep 0.1; continue; fi
        [ -z "$told" ] || stop "$server"
        read -r provider what _ <<<"$wanted"
        change_to "$provider"
        case $what in
            call) serve '^serving' "${prefix[@]}" "$naa" serve --bind $there --provider "$provider" --wait $wait ;;
            write) serve READY "${prefix[@]}" "$wire" sink --bind $there --provider "$provider" ;;
        esac
        told=$wanted
        tell have "$told"
    done
}

# As a: PROVIDER WHAT REPEAT
ask() {
    tell want "$*"
    change_to "$1"
    await "$RXE_VM_SHARED/have" "^$*\$"
}

call() { # PROVIDER REPEAT SERIES
    ask "$1" call "$2" && sample "$3" "$2" "$(ping $there "$1" $here "${prefix[@]}" | field p50_us)"
}

write() { # PROVIDER REPEAT SERIES
    ask "$1" write "$2" && sample "$3" "$2" "$(goodput $there "$1" $here "${prefix[@]}")"
}

verbs() {
    call verbs "$1" two-call-vv
    write verbs "$1" two-write-vv
}

embedded() {
    call embedded "$1" two-call-ee
    write embedded "$1" two-write-ee
}

softirqs_first
ip netns add plain
ip -n plain link set lo up
stage=verbs
if [ "$machine" = a ]; then each_repeat 'between two machines' verbs embedded; else obey; fi
