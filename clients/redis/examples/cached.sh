#!/bin/sh
# Prints what a command has printed in the last SECONDS, and runs it if that is gone:  cached.sh SECONDS 'COMMAND'
# Programs say TIDE.GET and TIDE.SET by their own library for Redis. This takes redis-cli 7, for -e and -X.
set -eu

[ $# = 2 ] || {
    echo "cached.sh SECONDS 'COMMAND'" >&2
    exit 2
}
seconds=$1 command=$2

said=$(redis-cli -e TIDE.GET "$command")
if [ -z "$said" ]; then
    said=$(sh -c "$command")
    # What is not kept is made again the next time.
    printf %s "$said" | redis-cli -e -X said TIDE.SET "$command" said EX "$seconds" > /dev/null || :
fi
printf '%s\n' "$said"
