#!/bin/sh
# probe.sh RESULT SOURCE COMPILER FLAG...: which of its two ways of calling the kernel does SOURCE compile in?
#
# With TIDE_NEWER a probe calls it as newer kernels want it, without as older ones do. RESULT becomes the line of
# compat-generated.h that says so. What compiles in neither way says nothing: the kernel may have changed again, or a
# header or the compiler is broken. Then the build ends, with what the compiler said.
set -eu
result=$1 source=$2
shift 2
name=$(basename "$source" .c)
macro=TIDE_HAVE_$(echo "$name" | tr '[:lower:]' '[:upper:]')

mkdir -p "$(dirname "$result")"
trap 'rm -f "$result.newer" "$result.older"' EXIT
if "$@" -DTIDE_NEWER "$source" 2>"$result.newer"; then
	echo "#define $macro 1" >"$result"
elif "$@" "$source" 2>"$result.older"; then
	echo "/* no $macro */" >"$result"
else
	cat "$result.newer" "$result.older" >&2
	echo "tidepool: compat/$name.c compiles for this kernel neither in its newer way nor in its older one" >&2
	exit 1
fi
