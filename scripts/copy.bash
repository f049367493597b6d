# Copies all that git would commit into a new folder, with its dates, so that little is built again. git applies patches there
# only if it finds no repository above. Sourced by scripts/plants and scripts/client-plants.
copy_sources() {
    rm -rf "$1" && mkdir -p "$1"
    git ls-files -z --cached --others --exclude-standard |
        tar --create --null --files-from - --ignore-failed-read 2>/dev/null | tar --extract --directory "$1"
    git init --quiet "$1"
}
