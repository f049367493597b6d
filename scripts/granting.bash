# Functions of scripts/check-dist and scripts/check-portable. Sourced by both, which have `say` and
# `die`, and `work`, a folder to work in.

# Whether the server of process $1 grants a lock at the socket $2.
grants_a_lock() {
    local deadline=$((SECONDS + 60))
    while kill -0 "$1" 2>/dev/null && [ $SECONDS -lt $deadline ]; do
        if [ -S "$2" ] && docker/healthcheck ready -s "$2" >>"$work/server.log" 2>&1; then return; fi
        sleep 0.1
    done
    return 1
}

# Skips what cannot be had here, with a line that says so. In CI that is a failure, because nobody
# reads the line there.
leave_out() {
    [ -z "${CI:-}" ] || die "$1, and nothing may be left out in CI"
    say "$1"
}
