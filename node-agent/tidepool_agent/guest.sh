# Runs inside the guest, as root: sh -c "$(cat guest.sh)" tidepool VERB ARGUMENT...
# The text is fixed; whatever varies comes as an argument. POSIX shell, and busybox must do.
# The key of a pairing never comes this way: arguments can be seen in the guest's process list.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

config=/sys/kernel/config
tree=$config/tidepool
place=/run/tidepool

# probe: what the agent knows about a guest, as PATH:LINE, in two processes
probe() {
    grep -asHE '^workingset_refault(_file)? ' /proc/vmstat || :
    grep -asH '' \
        /proc/sys/kernel/random/boot_id /proc/sys/kernel/osrelease /proc/uptime /proc/meminfo \
        /proc/pressure/memory /proc/pressure/io \
        /sys/module/tidepool/version /sys/module/tidepool/srcversion \
        "$tree"/stats "$tree"/latency "$tree"/port "$tree"/lend_bytes "$tree"/reserve_bytes \
        "$tree"/ghost "$tree"/ghost_curve \
        "$tree"/borrowers/*/* "$tree"/lenders/*/* || :
}

# installed: probe, and whether the guest brings a module of its own
installed() {
    probe
    if modprobe -n -q tidepool 2>/dev/null; then echo installed:yes; fi
}

# place: an empty folder that only root can read, for the module on its way
place() {
    rm -rf "$place"
    mkdir -m 700 "$place"
}

needs_configfs() {
    modprobe configfs 2>/dev/null || :
    grep -q " $config configfs " /proc/mounts || mount -t configfs configfs "$config"
}

# load SHA256: the module that lies in the folder, if it arrived whole
load() {
    trap 'rm -rf "$place"' EXIT
    echo "$1  $place/tidepool.ko" | sha256sum -c >/dev/null
    needs_configfs
    insmod "$place/tidepool.ko"
}

# load_installed: the guest's own module
load_installed() {
    needs_configfs
    modprobe tidepool
}

unload() {
    rmmod tidepool
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

# log: what the module said last
log() {
    dmesg | grep -a 'tidepool: ' | tail -n 5 || :
}

"$@"
