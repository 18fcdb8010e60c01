# shellcheck shell=bash
# What the tools here share; sourced.
PATH=$PATH:/usr/sbin:/sbin

# shellcheck disable=SC2034  # used by those who source this
cache=${TIDEPOOL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidepool}

say() {
    echo "${0##*/}: $*" >&2
}

die() {
    say "$*"
    exit 1
}

# need COMMAND...: stop with a message that says what is missing.
need() {
    local command
    for command in "$@"; do
        command -v "$command" > /dev/null ||
            die "'$command' is not installed here"
    done
}

# Address and suite of each Debian archive in this machine's apt configuration.
debian_archives() {
    apt-get indextargets --format '$(SITE) $(RELEASE) $(ORIGIN)' 'Created-By: Packages' |
        awk '$3 == "Debian" && !seen[$1, $2]++ { print $1, $2 }'
}

# sources_of SUITE: its lines of a sources.list. This machine's own suite comes with
# updates and security fixes where apt has them; of another one there is the archive.
sources_of() {
    local lines
    lines=$(debian_archives | awk -v suite="$1" -v host=bookworm '
        suite == host && $2 ~ "^" host "(-|$)" { print $1, $2 }
        suite != host && $2 == host { print $1, suite; exit }' |
        sed 's|^|deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] |; s|$| main|')
    [ -n "$lines" ] || die "apt on this machine has no Debian bookworm in its sources; run 'apt-get update' first"
    echo "$lines"
}

# with_suite SUITE FOLDER [PACKAGE...]: from now on apt sees this one suite of Debian, with its
# state in FOLDER, and nothing of this machine's packages. It knows the architectures that
# packages name, as in libc6:arm64.
with_suite() {
    local suite=$1 folder=$2 foreign
    foreign=$(printf '%s\n' "${@:3}" | sed -n 's/^[^=:]*:\([a-z0-9]*\).*/ "\1";/p' | sort -u | tr -d '\n')
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    sources_of "$suite" > "$folder/sources.list"
    cat > "$folder/apt.conf" << CONF
Dir::Etc::SourceList "$folder/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$folder/lists";
Dir::Cache "$folder/cache";
Dir::State::status "/dev/null";
APT::Sandbox::User "root";
APT::Architectures { "$(dpkg --print-architecture)";$foreign };
CONF
    export APT_CONFIG=$folder/apt.conf
    apt-get update -q >&2
}

# fetch_packages FOLDER PACKAGE...: downloads packages without installing them.
fetch_packages() {
    (cd "$1" && shift && apt-get download -q -o APT::Sandbox::User=root "$@" >&2)
}

# unpack_packages SUITE FOLDER PACKAGE...: what is in packages of a suite (not in what they depend on).
unpack_packages() {
    local suite=$1 folder=$2
    shift 2
    with_suite "$suite" "$folder/apt" "$@"
    fetch_packages "$folder/apt" "$@"
    unpack_archives "$folder" "$folder"/apt/*.deb
    rm -r "$folder/apt"
}

# unpack_programs SUITE FOLDER PACKAGE...: the same, with all that they depend on.
unpack_programs() {
    local suite=$1 folder=$2
    shift 2
    with_suite "$suite" "$folder/apt" "$@"
    apt-get install -y -q --download-only --no-install-recommends "$@" >&2
    unpack_archives "$folder" "$folder"/apt/cache/archives/*.deb
    rm -r "$folder/apt"
}

unpack_archives() {
    local folder=$1 deb
    shift
    for deb in "$@"; do
        dpkg-deb -x "$deb" "$folder"
    done
}
