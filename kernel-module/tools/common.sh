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

