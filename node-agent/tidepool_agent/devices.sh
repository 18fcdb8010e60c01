# The second half of what runs inside the guest, after guest.sh: block devices and swap. It needs dmsetup, and blkid of
# util-linux. NAME is device-mapper's: it begins with `tidepool-`, that of a swap area with `tidepool.swap`.
# What is refused is said on standard error as `refused: REASON: why, and what to do`; what was begun is undone then.

mapper=/dev/mapper
in_file=tidepool.swap
swap_file=tidepool_file # what that lies on: the blocks of the file
label=tidepool
mine=tidepool-agent-
kept=/var/lib/tidepool
megabyte=1048576

refuse() {
    echo "refused: $1: $2" >&2
    exit 4
}

# ---------------------------------------------------------------------------------------------------------------- probe

# mapped: the agent's devices, as mapped/NAME/WHAT:LINE; costs nothing where there are none. One that is odd, or goes
# meanwhile, says no more
mapped() {
    for node in "$mapper"/tidepool[-.]*; do
        name=${node##*/}
        if is_mine "$name"; then (describe "$name") 2>/dev/null || :; fi
    done
}

is_mine() {
    [ -e "$mapper/$1" ] && [ "$(uuid "$1")" = "$mine$1" ]
}

uuid() {
    dmsetup info -c --noheadings -o uuid "$1" 2>/dev/null
}

describe() {
    table=$(dmsetup table "$1") || return 0
    echo "mapped/$1/open:$(dmsetup info -c --noheadings -o open "$1" | tr -d ' ')"
    used=$(swapped "$1")
    if [ -n "$used" ]; then echo "mapped/$1/swapped:$used"; fi
    ! is_odd "$table" || return 0
    echo "mapped/$1/table:$table"
    echo "mapped/$1/status:$(dmsetup status "$1")"
    disk=/sys/dev/block/$(below "$table")
    echo "mapped/$1/disk:$(cat "$disk/size" 2>/dev/null)"
    disks "$disk" | sed "s|^|mapped/$1/below:|"
    if [ "$1" = "$in_file" ]; then echo "mapped/$1/file:$(dmsetup table "$swap_file" | cut -d ' ' -f 4)"; fi
}

# is_odd TABLE: whether it is none that this script makes
is_odd() {
    case $1 in
    *[!\ -~]*) return 0 ;; # of more than one line
    "0 "[1-9]*" linear "?*" 0" | "0 "[1-9]*" tidepool "?*" "?*) return 1 ;;
    esac
}

# below TABLE: MAJOR:MINOR of the disk, by `START SECTORS linear DISK FROM` or `START SECTORS tidepool LENDER DISK …`
below() {
    # shellcheck disable=SC2086  # the words of a table
    set -- $1
    if [ "$3" = linear ]; then echo "$4"; else echo "$5"; fi
}

# whole FOLDER: the disk that a device of /sys is a part of, or it itself
whole() (
    disk=$(readlink -f "$1")
    [ ! -e "$disk/partition" ] || disk=${disk%/*}
    echo "$disk"
)

# disks FOLDER: the disk that a device of /sys is a part of, and all that it lies on, as `NAME SERIAL…`
disks() (
    disk=$(whole "$1")
    echo "${disk##*/} $(serials "$disk" | tr '\n' ' ')"
    for lower in "$disk"/slaves/*; do
        [ ! -e "$lower" ] || disks "$lower"
    done
)

# serials FOLDER: all that a disk is called by those who have made it
serials() {
    for one in serial wwid device/serial device/wwid; do
        cat "$1/$one" 2>/dev/null || :
    done
    tr -cd '[:alnum:]._+-' 2>/dev/null <"$1/device/vpd_pg80" || :
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

# load_block SHA256 SHA256: the modules of files and of lenders that lie in the folder, if they arrived whole
load_block() {
    trap 'rm -f "$place/tidepool-file.ko" "$place/tidepool-block.ko"' EXIT
    needs_mapper
    printf '%s\n' "$1  $place/tidepool-file.ko" "$2  $place/tidepool-block.ko" | sha256sum -c >/dev/null
    [ -e /sys/module/tidepool_file ] || insmod "$place/tidepool-file.ko"
    insmod "$place/tidepool-block.ko" || {
        unload_file
        return 1
    }
}

# load_block_installed: the guest's own
load_block_installed() {
    needs_mapper
    modprobe tidepool-file
    modprobe tidepool-block
}

unload_block() {
    rmmod tidepool-block
    unload_file
}

# unload_file: the module of files stays while one is in use, or may be
unload_file() {
    [ -e /sys/module/tidepool_block ] || [ ! -e /sys/module/tidepool_file ] || rmmod tidepool-file 2>/dev/null || :
}

# create NAME SECTORS MAJOR:MINOR [POLICY]: a device on a disk, with lenders in front if the target is there
create() {
    if [ -e /sys/module/tidepool_block ]; then table="tidepool - $3 ${4-writethrough}"; else table="linear $3 0"; fi
    make_device "$1" "0 $2 $table"
}

# make_device NAME TABLE: one that was begun before, and has no table yet, makes way. In a guest without udev it is dmsetup
# that makes the node
make_device() {
    begun=$(dmsetup info -c --noheadings -o name -u "$mine$1" 2>/dev/null) || begun=
    if [ -n "$begun" ] && [ "$(uuid "$begun")" = "$mine$1" ]; then
        table=$(dmsetup table "$begun")
        [ -z "$table" ] || changed "$begun" "$table"
        dmsetup remove --verifyudev "$begun"
    fi
    dmsetup create "$1" --verifyudev --uuid "$mine$1" --table "$2"
}

# changed NAME TABLE: says that somebody has given a device another table, or another name
changed() {
    refuse DeviceChanged "$1 has a table or a name that the agent has not given it, $(echo "$2" | head -n 1 | cut -c 1-80): \
end what uses it, and remove it with dmsetup remove $1; it is made anew then"
}

# attach NAME POLICY: lenders in front of what has gone on without, or has written by another policy; why something could
# not be made was said then
attach() {
    is_mine "$1" || return 0
    policy=$2
    # shellcheck disable=SC2046  # the words of a table
    set -- "$1" $(dmsetup table "$1")
    case $4 in
    linear) switch "$1" "$2 $3 tidepool - $5 $policy" ;;
    tidepool) [ "${7-writethrough}" = "$policy" ] || switch "$1" "$2 $3 tidepool - $6 $policy" ;;
    esac
}

# detach NAME: without lenders, and used as before
detach() {
    # shellcheck disable=SC2046  # the words of a table
    set -- "$1" $(dmsetup table "$1")
    [ "$4" != tidepool ] || switch "$1" "$2 $3 linear $6 0"
}

# switch NAME TABLE: in one call of the kernel's, so that nobody waits for a program that is swapped out itself. A log goes
# with its table, so the disk has it first
switch() {
    case $(dmsetup table "$1") in *" behind"*) write_out "$1" ;; esac
    dmsetup load "$1" --table "$2"
    dmsetup resume --nolockfs "$1" || {
        dmsetup clear "$1"
        return 1
    }
}

# write_out NAME: what a log has that the disk has not
write_out() {
    dd if=/dev/null of="$mapper/$1" conv=fsync,notrunc 2>/dev/null ||
        refuse DiskRefuses "the disk below $1 does not take what was swapped out: make room on it, or mend it; until then $1 \
stays as it is, for else memory of programs would be lost"
}

# unmap NAME...: gives disks back that nobody uses
unmap() {
    for name; do
        if is_mine "$name"; then dmsetup remove --retry --verifyudev "$name"; fi
    done
}

# --------------------------------------------------------------------------------------------------------------- a disk

# map NAME PATH LEAST FORCE [DISK:SERIAL…]: a device on a disk of LEAST sectors or more, which none of those is that other
# guests share; lenders may come in front of it later
map() {
    needs_mapper
    name=$1 path=$2 force=$4 mark=$kept/devices/$1
    if has_table "$name"; then
        sys=/sys/dev/block/$(below "$table")
        remember
        return
    fi
    check "$path" "$3"
    shift 4
    check_unshared "$path" "$@"
    [ "$force" = force ] || [ "$(cat "$mark" 2>/dev/null)" = "$(numbers)" ] || check_empty "$path"
    create "$name" "$((sectors - sectors % 8))" "$(cat "$sys/dev")"
    remember
}

# has_table NAME: whether a device is there; refuses one that somebody has changed
has_table() {
    is_mine "$1" || return 1
    table=$(dmsetup table "$1")
    [ -n "$table" ] || return 1
    ! is_odd "$table" || changed "$1" "$table"
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

# numbers: what tells the disk from another one that may have its path one day; its size where it has nothing else. A
# partition has its disk's, and is its number there
numbers() {
    cat "$sys/partition" 2>/dev/null || :
    found=$(serials "$sys$([ ! -e "$sys/partition" ] || echo /..)" && cat "$sys/dm/uuid" 2>/dev/null) || :
    echo "${found:-$(cat "$sys/size")}"
}

# check PATH LEAST: that it is a disk which nobody uses; its folder in /sys becomes $sys, its size $sectors
check() {
    [ -b "$1" ] || refuse DeviceMissing "the guest has no block device $1; name another, or attach it to the guest"
    sys=/sys/dev/block/$(major_minor "$1")
    ! is_pools "$sys" || refuse DeviceTwice "$1 is a device that a pool has already; name it once"
    [ "$(cat "$sys/ro")" = 0 ] || refuse DeviceReadOnly "$1 is read-only; name one that can be written"
    sectors=$(cat "$sys/size")
    [ "$sectors" -ge "$2" ] ||
        refuse DeviceTooSmall "$1 has $((sectors * 512)) bytes, and $(($2 * 512)) are needed; name a larger one"
    check_idle "$1"
}

# check_unshared PATH [DISK:SERIAL…]: that it lies on none of those, whatever its own name is
check_unshared() {
    path=$1
    shift
    for shared; do
        ! disks "$sys" | is_among "${shared%%:*}" "${shared#*:}" ||
            refuse DeviceShared "other guests share $path, and lenders would not hear of what those write; name another device"
    done
}

# is_among DISK SERIAL: whether it is one of those on standard input; a short serial says nothing
is_among() {
    while read -r disk serials; do
        [ "$disk" != "$1" ] || return 0
        case $serials in *"$2"*) [ "${#2}" -lt 4 ] || return 0 ;; esac
    done
    return 1
}

# major_minor FILE: of the device, as the kernel writes it
major_minor() {
    # shellcheck disable=SC2046  # two words
    set -- $(stat -L -c '%t %T' "$1")
    echo "$((0x$1)):$((0x$2))"
}

check_idle() {
    for user in "$sys"/holders/* "$sys"/*/holders/*; do
        [ -e "$user" ] || continue
        ! is_pools "$user" || refuse DeviceTwice "$1 is below ${user##*/}, a device that a pool has already; name it once"
        refuse DeviceInUse "$1 is part of ${user##*/}; take it out of that, or name another device"
    done
    all_open
    for number in $(cat "$sys/dev" "$sys"/*/dev 2>/dev/null || :); do
        ! grep -q "^[0-9]* [0-9]* $number " /proc/self/mountinfo ||
            refuse DeviceInUse "$1 is mounted; unmount it, or name another device"
        ! has_open "$number" || refuse DeviceInUse "$1 is open: $holder; end what uses it, or name another device"
    done
}

# is_pools FOLDER: whether a device of /sys is one that the agent has made, or lies on one, whatever its name is
is_pools() (
    disk=$(whole "$1")
    case $(cat "$disk/dm/uuid" 2>/dev/null) in "$mine"*) return 0 ;; esac
    for lower in "$disk"/slaves/*; do
        [ ! -e "$lower" ] || ! is_pools "$lower" || return 0
    done
    return 1
)

# all_open: what processes have open of /dev becomes $opened, as `PROCESS/fd/NUMBER …`. Links are read as text: who follows
# those of all files waits for a file server that is gone
all_open() {
    code=0
    opened=$(timeout 30 ls -l /proc/[0-9]*/fd 2>/dev/null 9>&-) || code=$? # busybox's leaves a process that would hold the lock
    case $code in
    124 | 143) # by GNU's, and by busybox's
        refuse DeviceInUse "the guest does not tell in 30 s what its processes have open; try again when it has less to do"
        ;;
    esac
    opened=$(echo "$opened" | grep -v -e ' -> /dev/null$' -e ' -> /dev/u\{0,1\}random$' -e ' -> /dev/pts/' |
        sed -n -e '\|^/proc/.*/fd:$|{s|^/proc/\(.*\):$|\1|;h;}' \
            -e '/ -> \/dev\//{s|.* \([0-9]*\) -> /dev/.*|/\1|;G;s|\(.*\)\n\(.*\)|\2\1|;p;}')
}

# has_open MAJOR:MINOR: whether a process has it open, or it is a swap area; $holder says who
has_open() {
    while read -r file _; do
        holder="it is a swap area"
        [ ! -b "$file" ] || [ "$(major_minor "$file")" != "$1" ] || return 0
    done </proc/swaps
    # The shells of this script have none open. Processes that end meanwhile are no error.
    for one in $opened; do
        if [ -b "/proc/$one" ] && [ "$(major_minor "/proc/$one" 2>/dev/null)" = "$1" ]; then
            holder="process ${one%%/*} ($(cat "/proc/${one%%/*}/comm" 2>/dev/null || :))"
            return
        fi
    done
    return 1
}

# check_empty PATH: that nothing lies on a disk which has a name. What blkid tells of a partition's place in its table is
# nothing on it, but for partitions that firmware boots from, whose contents have no signature
check_empty() {
    code=0
    found=$(blkid -p -o export "$1" 2>/dev/null) || code=$?
    what=$(echo "$found" | sed -n -e 's/^\(PT\)\{0,1\}TYPE=//p' -e 's/^USAGE=//p' | head -n 1)
    case $(echo "$found" | sed -n 's/^PART_ENTRY_TYPE=//p') in
    21686148-6449-6e6f-744e-656564454649) what="what a BIOS boots" ;;
    9e1a2d38-c612-4316-aa26-8b49521e5a8b | 0x41) what="what PReP boots" ;;
    esac
    case $code$what in
    0 | 2) return ;;
    esac
    refuse DeviceNotEmpty \
        "on $1 lies ${what:-something that blkid does not tell}; name it in spec.borrowers.force if a pool may have it"
}

# ----------------------------------------------------------------------------------------------------------------- swap

# swap_on, swap_off: what takes minutes goes on while nobody waits for it
swap_on() {
    patiently make_swap "$@"
}

swap_off() {
    patiently end_swap "$@"
}

# patiently VERB ARGUMENT...: begins it, and says how it ended if it does soon, or else that it goes on; who asks for the
# same when it has ended is told why it failed
patiently() {
    alone
    said=$place.said
    if [ "$(head -n 1 "$said" 2>/dev/null)" = "$*" ] && [ -n "$(tail -n +2 "$said")" ]; then tell 4; fi
    echo "$*" >"$said"
    # shellcheck disable=SC2094  # it is removed when nothing more is written to it
    (
        "$@"
        rm -f "$said"
    ) </dev/null >/dev/null 2>>"$said" &
    job=$!
    trap 'refuse SettingUp "it takes its time, and goes on in the guest"' USR1
    (sleep 20 && kill -USR1 "$$") </dev/null >/dev/null 2>&1 9>&- &
    timer=$! code=0
    wait "$job" || code=$?
    trap '' USR1
    kill "$timer" 2>/dev/null || :
    tell "$code"
}

# tell CODE: what was said in the end, and ends like it
tell() {
    [ ! -e "$said" ] || tail -n +2 "$said" >&2
    rm -f "$said"
    exit "$1"
}

# make_swap NAME BYTES POLICY [PATH FORCE [DISK:SERIAL…]]: a swap area with lenders in front, before all others, in a file or
# on a disk; with a disk, BYTES of 0 are all that it has
make_swap() {
    needs_mapper
    [ -e /proc/swaps ] || refuse NoSwap "the guest's kernel has no swap; boot one that has it"
    [ -z "$(swapped "$1")" ] || return 0
    name=$1 bytes=$2 policy=$3
    made=
    unmap_swap "$name"
    trap 'unmap_swap "$name"; [ -z "$made" ] || rm -f "$made" "$kept/file"' EXIT
    shift 3
    if [ $# = 0 ]; then swap_in_file "$bytes"; else swap_on_disk "$bytes" "$@"; fi
    mkswap -L "$label" "$mapper/$name" >/dev/null
    swapon -p "$(priority)" "$mapper/$name"
    trap - EXIT
}

swap_on_disk() {
    least=$(($1 / 512))
    path=$2 force=$3
    shift 3
    check "$path" "$((least > 32768 ? least : 32768))"
    check_unshared "$path" "$@"
    [ "$force" = force ] || was_ours "$path" || check_empty "$path"
    [ "$least" -gt 0 ] || least=$((sectors - sectors % 8))
    create "$name" "$least" "$(cat "$sys/dev")" "$policy"
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

# end_swap NAME: takes a swap area away; what is in it comes back into memory
end_swap() {
    used=$(swapped "$1")
    if [ -n "$used" ]; then
        fits "$used"
        swapoff "$mapper/$1"
    fi
    unmap_swap "$1"
    [ "$1" = "$in_file" ] || return 0
    { cat "$kept/file" 2>/dev/null || :; rooms | sed 's|^[0-9]* \(.*\)|\1/swap|'; } | while read -r file; do
        if is_file "$file"; then rm -f "$file"; fi
    done
    rm -f "$kept/file"
}

# fits KIB: whether each cgroup has room for what comes back into it of so much; where there is none, the kernel kills
fits() {
    tight=$(sed -n 's/^[^ ]* \([^ ]*\) cgroup2\{0,1\} .*/\1/p' /proc/mounts | while read -r top; do
        find "$top" \( -name memory.max -o -name memory.limit_in_bytes \) 2>/dev/null
    done | while read -r limit; do overflow "${limit%/*}" "$(cat "$limit" 2>/dev/null)" "$(($1 * 1024))"; done | head -n 1)
    [ -z "$tight" ] || refuse SwapDoesNotFit "the cgroup ${tight#* } has ${tight%% *}Mi too little for what comes back into \
it of swap, and programs in it would be killed: end something in it, or raise its memory limit"
}

# overflow CGROUP LIMIT BYTES: how many MiB do not fit into it of so many, of which no more than its own come back; what
# it has read from files and not for long makes room
overflow() {
    case $2 in '' | max) return ;; esac
    held=$(cat "$1/memory.current" 2>/dev/null || cat "$1/memory.usage_in_bytes") || return 0
    files=$(sed -n -e 's/^total_inactive_file //p' -e 's/^inactive_file //p' "$1/memory.stat" | sort -n | tail -n 1)
    back=$(swapped_of "$1" "$held")
    lack=$(((back < $3 ? back : $3) + held - ${files:-0} - $2))
    [ "$lack" -le 0 ] || echo "$(((lack + megabyte - 1) / megabyte)) $1"
}

# swapped_of CGROUP HELD: how many bytes of it are swapped out; where the kernel does not count that, by its processes
swapped_of() {
    cat "$1/memory.swap.current" 2>/dev/null && return
    both=$(cat "$1/memory.memsw.usage_in_bytes" 2>/dev/null) && echo "$((both - $2))" && return
    find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r process; do
        sed -n 's/^VmSwap:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$process/status" 2>/dev/null || :
    done | {
        sum=0
        while read -r one; do sum=$((sum + one * 1024)); done
        echo "$sum"
    }
}

# alone: until this ends, and what it has begun
alone() {
    command -v flock >/dev/null || refuse NoFlock "the guest has no flock: install util-linux"
    exec 9>"$place.lock"
    flock -n 9 || refuse SettingUp "what an agent has begun before is still going on"
}

# unmap_swap NAME: what a swap area that is not in use lies on is free again; its file stays
unmap_swap() {
    if is_mine "$1"; then dmsetup remove --retry --verifyudev "$1"; fi
    [ "$1" = "$in_file" ] || return 0
    if is_mine "$swap_file"; then dmsetup remove --retry --verifyudev "$swap_file"; fi
    unload_file
}

# ---------------------------------------------------------------------------------------------------------- swap files

# swap_in_file BYTES: in the file that there is, or a new one where there is most room. Its blocks are one device, without
# the file system, which would need memory to give memory back; lenders come in front of that
swap_in_file() {
    was_there=
    file=$(rooms | while read -r _ folder; do
        if is_file "$folder/swap" "$1"; then echo "$folder/swap"; fi
    done | head -n 1)
    if [ -n "$file" ]; then made=$file was_there=yes; else make_file "$1"; fi
    note
    make_device "$swap_file" "0 $(($1 / 512)) tidepool-file $file" # where it is refused the file goes, and a new one is made
    [ -z "$was_there" ] || made=
    create "$name" "$(($1 / 512))" "$(major_minor "$mapper/$swap_file")" "$policy"
}

# note: where the file is, from before it is whole: what makes it may be killed
note() {
    if own_folder "$kept"; then echo "$file" >"$kept/file"; fi
}

# make_file BYTES: becomes $file, whole, and $made until it is in use; one that was not ended is gone on with
make_file() {
    file=$(cat "$kept/file" 2>/dev/null) || :
    begun=$(begun "$1")
    if [ "$begun" = 0 ]; then choose "$1"; fi
    made=$file
    note
    umask 077
    dd if=/dev/zero of="$file" bs="$megabyte" seek="$begun" count="$(($1 / megabyte - begun))" oflag=direct \
        conv=fsync,notrunc 2>/dev/null || refuse NoRoom "a swap file of $(($1 / megabyte))Mi could not be written to ${file%/*}"
}

# begun BYTES: how many MiB of these there are already in $file; it is gone where it is of no use
begun() {
    is_file "$file" || { echo 0 && return; }
    size=$(stat -c %s "$file")
    if [ "$size" -ge "$megabyte" ] && is_file "$file" "$size" && [ "$size" -lt "$1" ] && rooms |
        while read -r free folder; do [ "$folder/swap" != "$file" ] || echo "$free"; done |
        { read -r free && [ "$free" -ge "$((($1 - size) / 1024))" ]; }; then
        echo "$((size / megabyte))"
    else
        rm -f "$file" && echo 0
    fi
}

# choose BYTES: where a new one is made becomes $file
choose() {
    # shellcheck disable=SC2046  # two words
    set -- "$1" $(rooms | head -n 1)
    [ "${2:-0}" -ge "$(($1 / 1024))" ] || refuse NoRoom \
        "no file system of the guest has room for a swap file of $(($1 / megabyte))Mi that leaves a twentieth of it free: the \
most is $((${2:-0} / 1024))Mi. Those of / and /var/lib count, if they are ext4 or xfs with blocks of 4 KiB, on a disk that \
stays, and root alone can write to their tops. Make room, lower spec.borrowers.swap.size, or use backing Device"
    file=$3/swap
    own_folder "$3" || refuse NoRoom "$3 is not root's own, and what root needs cannot be made there; remove it"
    rm -f "$file"
}

# rooms: where a swap file may lie, as `KIB FOLDER`, most room first. A file system that writes elsewhere than it has
# read, in memory, or first to a journal is of no use; nor is one whose blocks are less than a page, that lies behind a
# pool itself, or to whose top others can write
rooms() {
    system=
    [ "$(readlink -f /var/lib)" != /var/lib ] || system=$(df -Pk /var/lib | tail -n 1 | sed 's/.* //') # no link to others' data
    while read -r source top type options _; do
        case $type,$source in
        ext[234],/dev/* | xfs,/dev/*) ;;
        *) continue ;;
        esac
        case ,$options, in
        *,ro,* | *,data=journal,*) continue ;;
        esac
        if is_roots "$top" && is_own "$top" && [ "$(stat -f -c %S "$top")" -ge 4096 ]; then room "$top"; fi
    done </proc/mounts | sort -rn
}

# is_own TOP: whether a file system is that of / or /var/lib, on a disk that stays and is no pool's. Whoever may have a
# folder of these can do what root can; of any other a container may have one as its volume
is_own() {
    case $1 in / | "$system") ;; *) return 1 ;; esac
    while read -r _ _ number _ point _; do
        if [ "$point" = "$1" ]; then set -- "$1" "$number"; fi
    done </proc/self/mountinfo
    [ $# = 2 ] && is_fixed "$2" && ! is_pools "/sys/dev/block/$2" && ! is_handed_out "$1" "$2"
}

# is_handed_out TOP MAJOR:MINOR: whether the whole file system is where users and containers get theirs
is_handed_out() {
    { echo "$1" && sed -n "s|^[0-9]* [0-9]* $2 / \([^ ]*\) .*|\1|p" /proc/self/mountinfo; } |
        grep -Eq '^(/var/lib/(kubelet|docker|containerd|containers)|/media|/run)(/|$)'
}

# is_fixed MAJOR:MINOR: whether a disk, with all that it lies on, is neither removable nor a file
is_fixed() (
    whole=$(whole "/sys/dev/block/$1")
    for lower in "$whole"/slaves/*; do
        [ ! -e "$lower" ] || is_fixed "$(cat "$lower/dev")" || return 1
    done
    [ ! -e "$whole/loop" ] && [ "$(cat "$whole/removable" 2>/dev/null)" != 1 ]
)

# room TOP: what a file system has beyond a twentieth of it, and its folder for us
room() {
    # shellcheck disable=SC2046  # the words of df
    set -- "$1" $(df -Pk "$1" | tail -n 1)
    folder=${1%/}/.tidepool
    [ "$1" != "$system" ] || folder=$kept
    free=$(($5 - $3 / 20))
    echo "$((free > 0 ? free : 0)) $folder"
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
