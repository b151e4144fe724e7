#!/usr/bin/env bash
# tmp-in-memory.sh COMMAND…: runs it with its temporary files in memory where there is enough of it.
# Tests make and drop thousands of small databases; on a disk that takes longer than what they test.
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

sweep() { # what runs have left that were killed: it would take the memory from all that follow
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
    # Database servers run as users of their own.
    chmod 1777 "$TMPDIR"
    trap 'rm -rf "$TMPDIR"' EXIT
fi
"$@"
