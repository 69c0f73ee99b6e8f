#!/bin/bash
# netem WORDS   impair the wire in both directions, in the words of tc-netem(8): netem loss 1% delay 2ms
# netem off     no longer
#
# In a machine of rxe-vm. Of two machines both are done when it returns. For guest.sh:
#   netem --here WORDS|off   this machine's part only
#   netem --single-packets   segmentation off
set -u
control=/run/rxe-vm/$machine

# Without these offloads every packet is a packet. With them a super-packet of up to 64 KiB passes as one, and netem
# would lose, double or delay its dozens of packets together.
segmentation() { # on|off DEVICE
    ethtool -K "$2" tso "$1" gso "$1" tx-udp-segmentation "$1"
}

impair() { # DEVICE WORDS
    local device=$1
    shift
    if [ "$*" = off ]; then
        # There may be none.
        tc qdisc delete dev "$device" root 2>/dev/null
        # A virtio card has not all of it.
        [ -n "$CAPTURE" ] || segmentation on "$device" >/dev/null 2>&1
        ! tc qdisc show dev "$device" | grep -q '^qdisc netem'
    else
        segmentation off "$device" && tc qdisc replace dev "$device" root netem "$@"
    fi
}

each_end() { # FUNCTION ARGUMENT ..., with DEVICE for the device
    local with_a=("${@/#DEVICE/eth-$machine}")
    "${with_a[@]}" || return
    [ -z "$TWO" ] || return 0
    export -f segmentation impair
    ip netns exec peer bash -c '"$@"' bash "${@/#DEVICE/eth-b}"
}

other_machine() { # WORDS
    local other=/run/rxe-vm/b
    [ "$machine" = a ] || other=/run/rxe-vm/a
    echo "$1" >"$other/netem.new"
    mv "$other/netem.new" "$other/netem"
    while [ -e "$other/netem" ]; do sleep 0.1; done
    cat "$other/netem.said"
    return "$(cat "$other/netem.status")"
}

here=
case ${1-} in
    '' | -h | --help) sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;;
    --single-packets) each_end segmentation off DEVICE; exit ;;
    --here) here=yes; shift ;;
esac
words=$*
# The default of 1000 packets is less than a delayed burst, and would lose the rest unasked.
[[ $words == off || $words == *limit* ]] || words="limit 100000 $words"
# shellcheck disable=SC2086
each_end impair DEVICE $words || { echo "netem: cannot do: $*" >&2; exit 1; }
[ -z "$TWO" ] || [ -n "$here" ] || other_machine "$*"
