# Fetches servers and their sources from Debian's archive, also from other releases than that of
# this machine. Sourced by scripts/servers and scripts/server-suites.
#
# Reads `work`, a folder to work in, `room`, a folder for what is being fetched, and `title` and
# `version`. A function that fails says why in `why`.

# The release whose packages are fetched, and those whose sources are searched.
readonly older_release=bookworm-backports
readonly releases=(bookworm bookworm-backports trixie sid experimental)

# Unpacks the source package into $room/files, the authors' own archive without Debian's patches,
# and sets `exact` to its version.
unpack_source() {
    open_archive || return
    if ! exact=$(newest Sources "$1"); then
        because "Debian's archive has no source package $1 $version"
        return 1
    fi
    say "$title: fetching the source package $1 $exact"
    if ! (cd "$room" && apt_get source --download-only "$1=$exact") >"$room/log" 2>&1; then
        because "apt-get: $(tail -n 1 "$room/log")"
        return 1
    fi
    mkdir "$room/files"
    tar -xf "$room"/*.orig.tar.* -C "$room/files" --strip-components 1
}

# Reads the lists of the releases, once. Lists and cache are our own, so that this needs no root and
# changes nothing of the machine's.
archive=''

open_archive() {
    if [ -z "$archive" ]; then
        archive=$work/apt
        mkdir -p "$archive"/{parts,lists/partial,cache/archives/partial}
        if ! command -v apt-get >/dev/null; then
            echo "it would come with apt, which is not on this machine" >"$archive/closed"
        elif ! write_sources; then
            echo "it would come from Debian's archive, which apt does not use on this machine" >"$archive/closed"
        else
            say "reading the lists of Debian's archive"
            # A missing release must not hide the others.
            apt_get update >"$archive/log" 2>&1 || true
            if ! compgen -G "$archive/lists/*_Sources*" >/dev/null; then
                echo "apt-get update: $(grep -m 1 '^[EW]:' "$archive/log" || tail -n 1 "$archive/log")" \
                    >"$archive/closed"
            fi
        fi
    fi
    if [ -e "$archive/closed" ]; then
        because "$(cat "$archive/closed")"
        return 1
    fi
}

# The places that apt uses here, with their keys, for other releases. They are written in one of two
# forms.
write_sources() {
    local stanza line release types
    stanza=$(cat_all /etc/apt/sources.list.d/*.sources | awk -v RS= '
        /(^|\n)URIs:[^\n]*\/debian[^-\/ \n]*\/?( |\n|$)/ && !/(^|\n)Enabled: *no/ { print; exit }')
    line=$(cat_all /etc/apt/sources.list /etc/apt/sources.list.d/*.list |
        grep -m 1 -E '^deb .*/debian[^-/ ]*/? ') || true
    [ -n "$stanza$line" ] || return
    for release in "${releases[@]}"; do
        types=deb-src
        [ "$release" != "$older_release" ] || types='deb deb-src'
        if [ -n "$stanza" ]; then
            sed -e "s/^Types:.*/Types: $types/" -e "s/^Suites:.*/Suites: $release/" \
                -e 's/^Components:.*/Components: main/' <<<"$stanza" >"$archive/parts/$release.sources"
        else
            for type in $types; do
                sed -E "s@^deb( +\[[^]]*\])? +([^ ]+) .*@$type\1 \2 $release main@" <<<"$line"
            done >"$archive/parts/$release.list"
        fi
    done
}

cat_all() {
    local file
    for file in "$@"; do
        # The blank line ends the last stanza of a file.
        [ ! -r "$file" ] || { cat "$file" && echo; }
    done
}

apt_get() { with_archive apt-get -q "$@"; }

with_archive() {
    local tool=$1
    shift
    "$tool" -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$archive/parts" \
        -o Dir::State::Lists="$archive/lists" -o Dir::Cache="$archive/cache" -o APT::Sandbox::User=root "$@"
}

# Prints the newest of this version among `Packages` or `Sources`. Fails if there is none.
newest() {
    with_archive apt-cache madison "$2" 2>/dev/null | awk -F ' *[|] *' -v kind="$1" -v version="$version." '
        { bare = $2; sub(/^[0-9]+:/, "", bare) }
        $3 ~ kind "$" && index(bare, version) == 1 { print $2 }' | sort -V | tail -n 1 | grep .
}

ask_setup_for() {
    if ! scripts/setup "$1" >"$room/log" 2>&1; then
        because "scripts/setup cannot install $(words_for "$1"): $(
            sed -n -E 's/^setup: (.*[^.])\.*$/\1/p' "$room/log" | tail -n 1)"
        return 1
    fi
}

words_for() {
    case $1 in
        builder) echo "compilers and make" ;;
        openssl) echo "the headers of OpenSSL" ;;
        *) echo "$1" ;;
    esac
}

name_of() { if [ "$1" = redis ]; then echo Redis; else echo Valkey; fi; }

because() { why=$1; }

say() { printf '%s: %s\n' "${0##*/}" "$1"; }
