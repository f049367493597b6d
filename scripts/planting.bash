# Sourced by scripts/plants and scripts/client-plants.

# Whether each patch of folder $1 still applies.
check_patches() {
    local patch status=0
    for patch in "$1"/*.patch; do
        git apply --check "$patch" || { echo "$patch no longer applies" >&2 && status=1; }
    done
    return "$status"
}

# Copies all that git would commit into a new folder, with its dates, so that little is built again. git applies patches there
# only if it finds no repository above.
copy_sources() {
    rm -rf "$1" && mkdir -p "$1"
    git ls-files -z --cached --others --exclude-standard |
        tar --create --null --files-from - --ignore-failed-read 2>/dev/null | tar --extract --directory "$1"
    git init --quiet "$1"
}
