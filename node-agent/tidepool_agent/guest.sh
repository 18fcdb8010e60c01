# Runs inside the guest, as root: sh -c "$(cat guest.sh devices.sh applications.sh; echo '"$@"')" tidepool VERB ARGUMENT...
# The text is fixed; whatever varies comes as an argument. POSIX shell, and busybox must do.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

config=/sys/kernel/config
tree=$config/tidepool
place=/run/tidepool

# probe: what the agent knows about a guest, as PATH:LINE, in two processes where it has neither devices nor memory
# for programs
probe() {
    grep -asHE '^workingset_refault(_file)? ' /proc/vmstat || :
    grep -asH '' \
        /proc/sys/kernel/random/boot_id /proc/sys/kernel/osrelease /proc/uptime /proc/meminfo \
        /proc/pressure/memory /proc/pressure/io \
        /sys/module/tidepool_block/srcversion /var/lib/tidepool/file \
        /sys/module/tidepool_app/srcversion /sys/module/tidepool_app/refcnt \
        /sys/module/tidepool_app/parameters/size_bytes /sys/class/misc/tidepool/stats \
        /sys/class/misc/tidepool/latency \
        /proc/sys/kernel/modules_disabled /sys/kernel/security/lockdown /sys/module/module/parameters/sig_enforce \
        /sys/module/tidepool/version /sys/module/tidepool/srcversion \
        "$tree"/identity "$tree"/stats "$tree"/latency "$tree"/port "$tree"/lend_bytes "$tree"/reserve_bytes "$tree"/hold \
        "$tree"/ghost "$tree"/ghost_curve \
        "$tree"/borrowers/*/* "$tree"/lenders/*/* || :
    mapped
    applications
}

# installed: probe, whether the guest brings a module of its own, and whether it could build one
installed() {
    probe
    if modprobe -n -q tidepool 2>/dev/null; then echo installed:yes; fi
    if can_build; then echo buildable:yes; fi
}

can_build() {
    for program in dkms make gcc tar; do
        command -v "$program" >/dev/null || return
    done
    [ -e "/lib/modules/$(uname -r)/build/Makefile" ]
}

# place: a folder that only root can read, for the module on its way; /run is in memory, and writable even where
# nothing else is
place() {
    if [ ! -e /sys/module/tidepool ]; then rm -rf "$place"; fi
    [ -d "$place" ] || mkdir -m 700 "$place"
}

# clear: everything that was delivered, or only what is not loaded
clear() {
    if [ -e /sys/module/tidepool ]; then
        rm -f "$place/tidepool.ko" "$place/tidepool-block.ko" "$place/tidepool-file.ko" "$place/tidepool-app.ko"
    else
        rm -rf "$place"
    fi
}

needs_configfs() {
    modprobe configfs 2>/dev/null || :
    grep -q " $config configfs " /proc/mounts || mount -t configfs configfs "$config"
}

# needs_modules FILE: what a module cannot be inserted without; what there is none of, insmod names
needs_modules() {
    for module in $(modinfo -F depends "$1" | tr , ' '); do
        modprobe "$module" 2>/dev/null || :
    done
}

# load SHA256: the module that lies in the folder, if it arrived whole; it is kept for the day that it is replaced
load() {
    trap clear EXIT
    echo "$1  $place/tidepool.ko" | sha256sum -c >/dev/null
    needs_configfs
    needs_modules "$place/tidepool.ko"
    insmod "$place/tidepool.ko"
    trap - EXIT
    mv "$place/tidepool.ko" "$place/kept.ko"
}

# replace SHA256: the loaded module, which nobody uses, by the one that lies in the folder; if that one is refused or
# does not work, the former one is loaded again and 3 returned
replace() {
    trap 'rm -f "$place/tidepool.ko"' EXIT
    echo "$1  $place/tidepool.ko" | sha256sum -c >/dev/null
    needs_modules "$place/tidepool.ko"
    rmmod tidepool
    if insmod "$place/tidepool.ko" && works; then
        mv "$place/tidepool.ko" "$place/kept.ko"
        return
    fi
    rmmod tidepool 2>/dev/null || :
    insmod "$place/kept.ko"
    return 3
}

# works: whether the module that has just been loaded is in order, with its hooks in
works() {
    echo NonInclusive >"$tree/ghost"
    for line in 'hooks 1' 'warnings 0'; do
        grep -qx "$line" "$tree/stats" || {
            echo "self-check: no '$line' in its stats" >&2
            return 1
        }
    done
    echo Off >"$tree/ghost"
}

# build SHA256 VERSION: has DKMS build and install the module from the sources that lie in the folder, for the kernel that
# runs; for those that come after it DKMS does it by itself
build() {
    trap clear EXIT
    echo "$1  $place/source.tar.gz" | sha256sum -c >/dev/null
    tar -xzf "$place/source.tar.gz" -C /usr/src --no-same-owner
    dkms install --force -k "$(uname -r)" "tidepool/$2" >"$place/log" 2>&1 || {
        tail -n 5 "$place/log" >&2
        return 1
    }
}

# load_installed: the guest's own module
load_installed() {
    needs_configfs
    modprobe tidepool
}

unload() {
    rmmod tidepool
    clear
}

# write FOLDER ATTRIBUTE=VALUE...: one write each; a refused one ends the script with its name
write() {
    folder=$1
    shift
    for pair; do
        if ! printf '%s\n' "${pair#*=}" >"$folder/${pair%%=*}"; then
            echo "refused: ${pair%%=*}=${pair#*=}" >&2
            return 1
        fi
    done
}

# settings ATTRIBUTE=VALUE...: of the module as a whole
settings() {
    write "$tree" "$@"
}

# peer FOLDER ATTRIBUTE=VALUE...: makes the directory, or stops the peer that it has, and configures it
peer() {
    folder=$tree/$1
    shift
    if [ -d "$folder" ]; then echo 0 >"$folder/enabled"; else mkdir "$folder"; fi
    write "$folder" "$@"
}

# change FOLDER ATTRIBUTE=VALUE...: what can change while the peer is in use
change() {
    folder=$tree/$1
    shift
    write "$folder" "$@"
}

# remove FOLDER...: stops the peers and gives back what they held
remove() {
    for folder; do
        [ ! -d "$tree/$folder" ] || rmdir "$tree/$folder"
    done
}

# path ADDRESS: the largest packet of which an answer comes from there, and the largest that the guest's card sends, in
# bytes; nothing where that cannot be told: no ping that forbids fragments, or no answer even to a small one
path() {
    address=$1
    case $address in
    *:*) headers=48 least=1280 ;;
    *) headers=28 least=576 ;;
    esac
    case $address in
    *%*) device=${address#*%} ;;
    *) device=$(ip -o route get "$address" | sed -n 's/.* dev \([^ ]*\).*/\1/p') ;;
    esac
    most=$(cat "/sys/class/net/$device/mtu")
    if ! passes "$least"; then return; fi
    if passes "$most"; then least=$most; fi
    below=$most
    while [ $((below - least)) -gt 1 ]; do
        middle=$(((least + below) / 2))
        if passes "$middle"; then least=$middle; else below=$middle; fi
    done
    echo "$least $most"
}

# passes BYTES: whether one of two packets of that size is answered
passes() {
    ping -n -c 2 -i 0.2 -W 1 -M 'do' -s "$(($1 - headers))" "$address" >/dev/null 2>&1
}

# log: what the module said last
log() {
    dmesg | grep -a -e 'tidepool: ' -e 'tidepool-file: ' -e 'swapon: ' -e 'Lockdown: .* unsigned module' | tail -n 5 || :
}
