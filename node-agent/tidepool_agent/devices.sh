# The second half of what runs inside the guest, after guest.sh: block devices and swap. It needs dmsetup, and blkid and
# losetup of util-linux. NAME is device-mapper's: it begins with `tidepool-`, that of a swap area with `tidepool.swap`.
# What is refused is said on standard error as `refused: REASON: why, and what to do`; what was begun is undone then.

mapper=/dev/mapper
in_file=tidepool.swap
label=tidepool
mine=tidepool-agent-
kept=/var/lib/tidepool
megabyte=1048576

refuse() {
    echo "refused: $1: $2" >&2
    exit 4
}

# ---------------------------------------------------------------------------------------------------------------- probe

# mapped: the agent's devices, as mapped/NAME/WHAT:LINE; costs nothing where there are none
mapped() {
    for node in "$mapper"/tidepool[-.]*; do
        name=${node##*/}
        if is_mine "$name"; then describe "$name"; fi
    done
}

is_mine() {
    [ -e "$mapper/$1" ] && [ "$(uuid "$1")" = "$mine$1" ]
}

uuid() {
    dmsetup info -c --noheadings -o uuid "$1" 2>/dev/null
}

describe() {
    table=$(dmsetup table "$1")
    echo "mapped/$1/table:$table"
    echo "mapped/$1/status:$(dmsetup status "$1")"
    echo "mapped/$1/open:$(dmsetup info -c --noheadings -o open "$1" | tr -d ' ')"
    backing=/sys/dev/block/$(below "$table")/loop/backing_file
    if [ "$1" = "$in_file" ] && [ -e "$backing" ]; then echo "mapped/$1/file:$(head -n 1 "$backing")"; fi
    used=$(swapped "$1")
    if [ -n "$used" ]; then echo "mapped/$1/swapped:$used"; fi
}

# below TABLE: MAJOR:MINOR of the disk, by `START SECTORS linear DISK FROM` or `START SECTORS tidepool LENDER DISK …`
below() {
    # shellcheck disable=SC2086  # the words of a table
    set -- $1
    if [ "$3" = linear ]; then echo "$4"; else echo "$5"; fi
}

# swapped NAME: how many KiB are in it; nothing if it is not in use as swap
swapped() {
    node=$(readlink -f "$mapper/$1")
    while read -r file _ _ used _; do
        if [ "$file" = "$node" ]; then echo "$used"; fi
    done </proc/swaps
}

# --------------------------------------------------------------------------------------------------------------- target

needs_mapper() {
    command -v dmsetup >/dev/null ||
        refuse NoDmsetup "the guest has no dmsetup: install it (the package dmsetup or device-mapper)"
    modprobe dm-mod 2>/dev/null || :
    grep -q ' device-mapper$' /proc/misc ||
        refuse NoDeviceMapper "the guest's kernel has no device-mapper: install its extra modules, or boot another"
}

# load_block SHA256: the target's module that lies in the folder, if it arrived whole
load_block() {
    trap 'rm -f "$place/tidepool-block.ko"' EXIT
    needs_mapper
    echo "$1  $place/tidepool-block.ko" | sha256sum -c >/dev/null
    insmod "$place/tidepool-block.ko"
}

# load_block_installed: the guest's own
load_block_installed() {
    needs_mapper
    modprobe tidepool-block
}

unload_block() {
    rmmod tidepool-block
}

# create NAME SECTORS DISK: lenders in front of a disk. In a guest without udev it is dmsetup that makes the node
create() {
    dmsetup create "$1" --verifyudev --uuid "$mine$1" --table "0 $2 tidepool - $3"
}

# attach NAME: lenders in front of what has gone on without
attach() {
    # shellcheck disable=SC2046  # the words of a table
    set -- "$1" $(dmsetup table "$1")
    [ "$4" != linear ] || switch "$1" "$2 $3 tidepool - $5"
}

# detach NAME: without lenders, and used as before
detach() {
    # shellcheck disable=SC2046  # the words of a table
    set -- "$1" $(dmsetup table "$1")
    [ "$4" != tidepool ] || switch "$1" "$2 $3 linear $6 0"
}

# switch NAME TABLE: in one call of the kernel's, so that nobody waits for a program that is swapped out itself
switch() {
    dmsetup load "$1" --table "$2"
    dmsetup resume --nolockfs "$1" || {
        dmsetup clear "$1"
        return 1
    }
}

# unmap NAME...: gives disks back that nobody uses
unmap() {
    for name; do
        if is_mine "$name"; then dmsetup remove --retry --verifyudev "$name"; fi
    done
}

# --------------------------------------------------------------------------------------------------------------- a disk

# map NAME PATH LEAST FORCE: lenders in front of a disk of LEAST sectors or more
map() {
    needs_mapper
    ! is_mine "$1" || return 0
    check "$2" "$3"
    mark=$kept/devices/$1
    [ "$4" = force ] || [ "$(cat "$mark" 2>/dev/null)" = "$(numbers)" ] || check_empty "$2"
    create "$1" "$((sectors - sectors % 8))" "$2"
    remember
}

# remember: that what lies on the disk has been written through the pool, so that it is taken again after a reboot
remember() {
    own_folder "$kept" && own_folder "$kept/devices" && numbers >"$mark" || return 0
}

# own_folder FOLDER: one that nobody but root can put anything into
own_folder() {
    [ -d "$1" ] || mkdir -m 700 "$1" || return 1
    is_roots "$1"
}

# numbers: what tells the disk from another one that may have its path one day
numbers() {
    echo "$sectors"
    for one in serial wwid device/serial device/wwid dm/uuid partition; do
        cat "$sys/$one" 2>/dev/null || :
    done
}

# check PATH LEAST: that it is a disk which nobody uses; its folder in /sys becomes $sys, its size $sectors
check() {
    [ -b "$1" ] || refuse DeviceMissing "the guest has no block device $1; name another, or attach it to the guest"
    sys=/sys/dev/block/$(major_minor "$1")
    case $(cat "$sys/dm/uuid" 2>/dev/null) in
    "$mine"*) refuse DeviceTwice "$1 is a device that a pool has already; name it once" ;;
    esac
    [ "$(cat "$sys/ro")" = 0 ] || refuse DeviceReadOnly "$1 is read-only; name one that can be written"
    sectors=$(cat "$sys/size")
    [ "$sectors" -ge "$2" ] ||
        refuse DeviceTooSmall "$1 has $((sectors * 512)) bytes, and $(($2 * 512)) are needed; name a larger one"
    check_idle "$1"
}

# major_minor FILE: of the device, as the kernel writes it
major_minor() {
    # shellcheck disable=SC2046  # two words
    set -- $(stat -L -c '%t %T' "$1")
    echo "$((0x$1)):$((0x$2))"
}

check_idle() {
    users=$(echo "$sys"/holders/* "$sys"/*/holders/* | tr ' ' '\n' | sed -n 's|.*/holders/\([^*].*\)|\1|p' | head -n 1)
    [ -z "$users" ] || refuse DeviceInUse "$1 is part of $users; take it out of that, or name another device"
    for number in $(cat "$sys/dev" "$sys"/*/dev 2>/dev/null || :); do
        ! grep -q "^[0-9]* [0-9]* $number " /proc/self/mountinfo ||
            refuse DeviceInUse "$1 is mounted; unmount it, or name another device"
        ! has_open "$number" || refuse DeviceInUse "$1 is open: $holder; end what uses it, or name another device"
    done
}

# has_open MAJOR:MINOR: whether a process has it open, or it is a swap area; $holder says who
has_open() {
    while read -r file _; do
        holder="it is a swap area"
        [ ! -b "$file" ] || [ "$(major_minor "$file")" != "$1" ] || return 0
    done </proc/swaps
    # The shells of this script have none open. Processes that end meanwhile are no error.
    for holder in $(find -L /proc/[0-9]*/fd -maxdepth 1 -type b 2>/dev/null || :); do
        if [ "$(major_minor "$holder" 2>/dev/null)" = "$1" ]; then
            holder=${holder#/proc/}
            holder="process ${holder%%/*} ($(cat "/proc/${holder%%/*}/comm" 2>/dev/null || :))"
            return
        fi
    done
    return 1
}

# check_empty PATH: that nothing lies on a disk which has a name
check_empty() {
    code=0
    found=$(blkid -p -o export "$1" 2>/dev/null) || code=$?
    [ "$code" != 2 ] || return 0
    what=$(echo "$found" | sed -n 's/^\(PT\)\{0,1\}TYPE=//p' | head -n 1)
    refuse DeviceNotEmpty \
        "on $1 lies ${what:-something that blkid does not tell}; name it in spec.borrowers.force if a pool may have it"
}

# ----------------------------------------------------------------------------------------------------------------- swap

# swap_on NAME BYTES [PATH FORCE]: a swap area with lenders in front, before all others, in a file or on a disk; with a
# disk, BYTES of 0 are all that it has
swap_on() {
    needs_mapper
    [ -e /proc/swaps ] || refuse NoSwap "the guest's kernel has no swap; boot one that has it"
    alone
    [ -z "$(swapped "$1")" ] || return 0
    name=$1
    made=
    unmap_swap "$name"
    trap 'unmap_swap "$name"; [ -z "$made" ] || rm -f "$made" "$kept/file"' EXIT
    if [ $# = 2 ]; then swap_in_file "$2"; else swap_on_disk "$2" "$3" "$4"; fi
    mkswap -L "$label" "$mapper/$name" >/dev/null
    swapon -p "$(priority)" "$mapper/$name"
    trap - EXIT
}

swap_on_disk() {
    least=$(($1 / 512))
    check "$2" "$((least > 32768 ? least : 32768))"
    [ "$3" = force ] || was_ours "$2" || check_empty "$2"
    [ "$least" -gt 0 ] || least=$((sectors - sectors % 8))
    create "$name" "$least" "$2"
}

# was_ours PATH: whether it is a swap area that has been made here before
was_ours() {
    [ "$(blkid -p -o export "$1" 2>/dev/null | grep -cx -e TYPE=swap -e "LABEL=$label")" = 2 ]
}

# priority: above that of all other swap
priority() {
    most=9
    while read -r _ _ _ _ one; do
        case $one in
        '' | *[!0-9]*) ;;
        *) [ "$one" -le "$most" ] || most=$one ;;
        esac
    done </proc/swaps
    echo "$((most < 32767 ? most + 1 : most))"
}

# swap_off NAME: takes a swap area away; what is in it comes back into memory
swap_off() {
    alone
    if [ -n "$(swapped "$1")" ]; then swapoff "$mapper/$1"; fi
    unmap_swap "$1"
    [ "$1" = "$in_file" ] || return 0
    rooms | while read -r _ folder; do
        if is_file "$folder/swap"; then rm -f "$folder/swap"; fi
    done
    rm -f "$kept/file"
}

# alone: until this ends; what an agent has begun goes on when that agent is gone, and takes minutes
alone() {
    command -v flock >/dev/null || refuse NoFlock "the guest has no flock: install util-linux"
    exec 9>"$place.lock"
    flock -n 9 || refuse SettingUp "what an agent has begun before is still going on"
}

# unmap_swap NAME: what a swap area that is not in use lies on is free again; its file stays
unmap_swap() {
    if is_mine "$1"; then dmsetup remove --retry --verifyudev "$1"; fi
    [ "$1" = "$in_file" ] || return 0
    for backing in /sys/block/loop*/loop/backing_file; do
        [ -e "$backing" ] || continue
        case $(head -n 1 "$backing") in
        */.tidepool/swap | "$kept/swap") losetup -d "/dev/$(echo "$backing" | cut -d / -f 4)" ;;
        esac
    done
}

# ---------------------------------------------------------------------------------------------------------- swap files

# swap_in_file BYTES: in the file that there is, or a new one where there is most room. The loop device goes past the
# page cache, which would need memory to give memory back; the blocks of the file are written before they are used
swap_in_file() {
    modprobe loop 2>/dev/null || :
    file=$(rooms | while read -r _ folder; do
        if is_file "$folder/swap" "$1"; then echo "$folder/swap"; fi
    done | head -n 1)
    [ -n "$file" ] || make_file "$1"
    if own_folder "$kept"; then echo "$file" >"$kept/file"; fi
    loop=$(losetup -f --show --direct-io=on --sector-size 4096 "$file") ||
        refuse NoLoopDevice "$file becomes no block device: the guest needs losetup of util-linux, and the module loop"
    create "$name" "$(($1 / 512))" "$loop"
    [ "$(cat "/sys/block/${loop##*/}/loop/dio")" = 1 ] ||
        refuse NoDirectIO "the file system of $file cannot be written past the page cache; use backing Device"
}

# make_file BYTES: becomes $file, whole, and $made until it is in use
make_file() {
    # shellcheck disable=SC2046  # two words
    set -- "$1" $(rooms | head -n 1)
    [ "${2:-0}" -ge "$(($1 / 1024))" ] || refuse NoRoom \
        "no file system of the guest has room for a swap file of $(($1 / megabyte))Mi that leaves a twentieth of it free: the \
most is $((${2:-0} / 1024))Mi. Those on disks count that are ext4 or xfs and that root alone can write to. Make \
room, lower spec.borrowers.swap.size, or use backing Device"
    file=$3/swap
    own_folder "$3" || refuse NoRoom "$3 is not root's own, and what root needs cannot be made there; remove it"
    made=$file
    rm -f "$file"
    umask 077
    dd if=/dev/zero of="$file" bs="$megabyte" count="$(($1 / megabyte))" oflag=direct conv=fsync 2>/dev/null ||
        refuse NoRoom "a swap file of $(($1 / megabyte))Mi could not be written to $3"
}

# rooms: where a swap file may lie, as `KIB FOLDER`, most room first. A file system that writes elsewhere than it has
# read, or in memory, is of no use; nor is one that lies behind a pool itself, or to whose top others can write
rooms() {
    while read -r source top type options _; do
        case $type,$source,$top in
        *\\*) continue ;;
        ext[234],/dev/* | xfs,/dev/*) ;;
        *) continue ;;
        esac
        case ,$options,$(uuid_of "$source") in
        *,ro,* | *,"$mine"*) continue ;;
        esac
        if is_roots "$top"; then room "$top"; fi
    done </proc/mounts | sort -rn
}

# room TOP: what a file system has beyond a twentieth of it, and its folder for us
room() {
    # shellcheck disable=SC2046  # the words of df
    set -- "$1" $(df -Pk "$1" | tail -n 1)
    folder=${1%/}/.tidepool
    [ "$(df -Pk /var/lib | tail -n 1 | sed 's/.* //')" != "$1" ] || folder=$kept
    free=$(($5 - $3 / 20))
    echo "$((free > 0 ? free : 0)) $folder"
}

uuid_of() {
    { [ ! -b "$1" ] || cat "/sys/dev/block/$(major_minor "$1")/dm/uuid"; } 2>/dev/null || :
}

# is_roots FOLDER: whether nobody else can put anything there
is_roots() {
    case $(stat -c '%u %A' "$1" 2>/dev/null) in
    0\ d????-??-?) ;;
    *) return 1 ;;
    esac
}

# is_file FILE [BYTES]: whether it is a swap file of ours, and whole
is_file() {
    is_roots "${1%/*}" && [ -f "$1" ] && [ ! -L "$1" ] || return 1
    # shellcheck disable=SC2046  # three words
    set -- "${2:-}" $(stat -c '%s %b %B' "$1")
    [ -z "$1" ] || { [ "$2" = "$1" ] && [ "$(($3 * $4))" -ge "$1" ]; }
}
