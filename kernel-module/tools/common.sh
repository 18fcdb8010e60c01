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

# The address of the Debian archive that this machine's apt uses.
debian_archive() {
    apt-get indextargets --format '$(SITE) $(RELEASE) $(ORIGIN)' 'Created-By: Packages' |
        awk '$2 == "bookworm" && $3 == "Debian" { print $1; exit }'
}

# with_suite SUITE FOLDER: from now on apt sees this one suite of Debian, with its
# state in FOLDER, and nothing of this machine's packages.
with_suite() {
    local suite=$1 folder=$2 archive
    archive=$(debian_archive)
    [ -n "$archive" ] || die "apt on this machine has no Debian bookworm in its sources; run 'apt-get update' first"
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $suite main" > "$folder/sources.list"
    cat > "$folder/apt.conf" << CONF
Dir::Etc::SourceList "$folder/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$folder/lists";
Dir::Cache "$folder/cache";
Dir::State::status "/dev/null";
APT::Sandbox::User "root";
CONF
    export APT_CONFIG=$folder/apt.conf
    apt-get update -q >&2
}

# fetch_packages FOLDER PACKAGE...: downloads packages without installing them.
fetch_packages() {
    (cd "$1" && shift && apt-get download -q -o APT::Sandbox::User=root "$@" >&2)
}
