#!/usr/bin/env bash
# Old clients (SET NX PX, and Lua to release and extend) and Leasehold on one lock: each keeps the other out.
# In one terminal: make run. In another: examples/migrate/story.sh
set -euo pipefail

URL=${REDIS_URL:-redis://127.0.0.1:6379}
CLI=${REDIS_CLI:-$(command -v redis-cli || command -v valkey-cli)}
KEY=lock:table:1
TTL=5000
TURNS=${TURNS:-20}

redis() { "$CLI" -u "$URL" "$@"; }

# --- the old client: this is what you have ----------------------------------------------------------

COMPARE_AND_DELETE='if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end'
COMPARE_AND_PEXPIRE='if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("PEXPIRE", KEYS[1], ARGV[2]) else return 0 end'

# OK, or nothing if the lock is held.
old_acquire() { redis SET "$KEY" "$1" NX PX $TTL; }
old_release() { redis EVAL "$COMPARE_AND_DELETE" 1 "$KEY" "$1"; }
old_extend() { redis EVAL "$COMPARE_AND_PEXPIRE" 1 "$KEY" "$1" $TTL; }

# --- the Leasehold client: this is what it becomes --------------------------------------------------

# The fence, or nothing if the lock is held.
new_acquire() { redis LOCK.ACQUIRE "$KEY" "$1" $TTL; }
# The same after a wait. The second request confirms the grant, and its lease begins anew.
new_wait() { redis LOCK.ACQUIRE "$KEY" "$1" $TTL BLOCK "$2" >/dev/null && new_acquire "$1"; }
new_release() { redis LOCK.RELEASE "$KEY" "$1" "$2"; }
new_extend() { redis LOCK.EXTEND "$KEY" "$1" $TTL "$2"; }

# --- the story ------------------------------------------------------------------------------------

turns() {
    local old=olga:$RANDOM new=nina:$RANDOM fence

    echo "The old client holds the lock"
    tell olga "SET NX PX" "$(old_acquire $old)"
    tell nina "LOCK.ACQUIRE" "$(new_acquire $new)"
    tell nina "LOCK.RELEASE of a lock that is not hers" "$(new_release $new 0)"
    tell olga "Lua: compare and extend" "$(old_extend $old)"
    tell olga "Lua: compare and delete" "$(old_release $old)"

    echo "Leasehold holds the lock"
    fence=$(new_acquire $new)
    tell nina "LOCK.ACQUIRE" "$fence"
    tell olga "SET NX PX" "$(old_acquire $old)"
    tell olga "Lua: compare and delete what is not hers" "$(old_release $old)"
    tell nina "LOCK.EXTEND" "$(new_extend $new "$fence")"
    tell nina "LOCK.RELEASE" "$(new_release $new "$fence")"

    echo "The old client holds the lock, Leasehold waits for it"
    tell olga "SET NX PX" "$(old_acquire $old)"
    new_wait $new 10000 >"$folder/granted" &
    until [ "$(redis LOCK.WAITERS "$KEY" | grep -c nina)" = 1 ]; do sleep 0.01; done
    tell olga "Lua: compare and delete" "$(old_release $old)"
    wait $!
    fence=$(cat "$folder/granted")
    tell nina "LOCK.ACQUIRE BLOCK 10000" "$fence"
    tell nina "LOCK.RELEASE" "$(new_release $new "$fence")"
}

tell() { printf '  %-6s %-42s %s\n' "$1" "$2" "${3:-(nil)}"; }

# Both count in one file, which neither reads and writes in one step. Only the lock keeps them apart.
race() {
    echo "Both at once, $TURNS turns each"
    echo 0 >"$folder/count"
    old_turns & local old=$!
    new_turns & local new=$!
    wait $old
    wait $new
    echo "  counted to $(cat "$folder/count")"
}

old_turns() {
    local turn
    for ((turn = 0; turn < TURNS; turn++)); do
        # It has to ask again and again. Nobody knows that it waits.
        until [ "$(old_acquire "olga:$turn")" = OK ]; do sleep 0.01; done
        count
        old_release "olga:$turn" >/dev/null
    done
}

new_turns() {
    local turn fence
    for ((turn = 0; turn < TURNS; turn++)); do
        until fence=$(new_wait "nina:$turn" 60000) && [ -n "$fence" ]; do :; done
        count
        new_release "nina:$turn" "$fence" >/dev/null
    done
}

count() {
    local seen
    seen=$(cat "$folder/count")
    sleep 0.01
    echo $((seen + 1)) >"$folder/count"
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if ! redis LOCK.HELP | grep LOCK.ACQUIRE >/dev/null; then
    echo "No server with Leasehold at $URL. Start one: make run" >&2
    exit 1
fi
turns
race
