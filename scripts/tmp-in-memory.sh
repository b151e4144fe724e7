#!/usr/bin/env bash
# tmp-in-memory.sh COMMAND…: run it with its temporary files in memory if enough memory is free.
# Tests create and drop thousands of small databases; on disk this takes longer than the tests.
set -euo pipefail

MEMORY=/dev/shm
ENOUGH_KIB=$((8 * 1024 * 1024))

is_enough() {
    [[ -d $MEMORY && -w $MEMORY ]] || return 1
    local room free
    room=$(df --output=avail "$MEMORY" | tail -n 1)
    free=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
    ((room >= ENOUGH_KIB && free >= ENOUGH_KIB))
}

sweep() { # remove the files of killed runs, which would occupy memory
    local left owner
    for left in "$MEMORY"/naksha-*-*; do
        owner=${left#"$MEMORY"/naksha-}
        owner=${owner%%-*}
        if [[ $owner =~ ^[0-9]+$ && -O $left && ! -e /proc/$owner ]]; then rm -rf "$left"; fi
    done
}

sweep
if [[ -z ${TMPDIR:-} ]] && is_enough; then
    TMPDIR=$(mktemp -d "$MEMORY/naksha-$$-XXXXXX")
    export TMPDIR
    # Database servers run as their own users.
    chmod 1777 "$TMPDIR"
    trap 'rm -rf "$TMPDIR"' EXIT
fi
"$@"
