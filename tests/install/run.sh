#!/bin/bash
# Runs what the projects beside this file built, each against the accelerator it is meant for.
#
#     run.sh NAA BUILD PROVIDER ADDRESS
#
# NAA is the installed program, BUILD the folder with the projects' build folders, ADDRESS one of this machine.
# Prints a line `ROW|NAME|RESULT` per program; the result is `ok`, or how it ended and what it said last.
set -u
naa=$1 build=$2 provider=$3 address=$4
port=12345
export NAA_PROVIDER=$provider NAA_LOCAL_IP=$address
log=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$log"' EXIT

# serve WORD COMMAND...: starts a server and waits for the line of its output that starts with WORD.
serve() {
    local word=$1
    shift
    "$@" >"$log/server" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        grep -q "^$word" "$log/server" && return
        kill -0 $server 2>/dev/null || break
        sleep 0.05
    done
    echo "ROW|$1|does not serve: $(tail -n 1 "$log/server")"
}

# ends NAME: the server is told to end, and does.
ends() {
    kill -TERM $server
    for _ in $(seq 200); do
        if ! kill -0 $server 2>/dev/null; then
            wait $server
            result=$?
            server=
            [ $result = 0 ] && echo "ROW|$1|ok" || echo "ROW|$1|exit status $result: $(tail -n 1 "$log/server")"
            return
        fi
        sleep 0.05
    done
    kill -KILL $server
    server=
    echo "ROW|$1|does not end at SIGTERM"
}

# row NAME COMMAND...
row() {
    local name=$1
    shift
    timeout -k 5 60 "$@" >"$log/out" 2>&1
    local status=$?
    if [ $status = 0 ]; then
        echo "ROW|$name|ok"
    else
        echo "ROW|$name|exit status $status: $(tail -n 1 "$log/out" | tr '|' '/')"
        sed 's/^/  /' "$log/out" >&2
    fi
}

spec() {
    export NAA_SPEC=$address:$port:$1:2
}

serve serving "$naa" serve --bind "$address" --port $port --kernels "$build/native/libtriple.so"
row "$provider: low level, pkg-config, shared" "$build/low-level/poll" "$address" $port
row "$provider: low level, pkg-config, static" "$build/low-level/poll-static" "$address" $port
row "$provider: low level, NAAICE's library names" "$build/low-level/poll-names" "$address" $port
spec 1
row "$provider: middleware, CMake, shared" "$build/shared/middleware" 1
row "$provider: middleware, CMake, static" "$build/static/middleware" 1
row "$provider: C++, CMake, shared" "$build/shared/headers"
row "$provider: C++, CMake, static" "$build/static/headers"
row "$provider: naa.h, pkg-config, shared" "$build/native/offload" "$address" $port
row "$provider: naa.h, CMake, static" "$build/native/offload-static" "$address" $port
ends "$provider: naa serve"

# The client is the middleware's each time.
own_server() {
    serve serving "$2" $port
    row "$provider: own server, $1" "$build/shared/middleware" 5
    ends "$provider: own server ends, $1"
}

spec 42
own_server "pkg-config, shared" "$build/low-level/server"
own_server "CMake, shared" "$build/shared/server"
own_server "CMake, static" "$build/static/server"
own_server "next, CMake, shared" "$build/shared/server-next"
own_server "next, CMake, static" "$build/static/server-next"
