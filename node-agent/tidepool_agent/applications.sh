# The third part of what runs inside the guest: memory for programs. What is refused is said as in devices.sh. MODE and
# GROUP are written into a rule of udev's: the agent lets nothing through that is more than a mode or a name.

app=/sys/module/tidepool_app
values=/dev/tidepool
values_device=/sys/class/misc/tidepool/dev
udev=/run/udev
udev_rule=$udev/rules.d/90-tidepool.rules

# applications: whose the device is, the group that it was given to, by its present number, and what is counted of its
# pools, as application/WHAT:LINE; takes no process where there is none
applications() {
    [ -e "$app" ] || return 0
    stat -c 'application/device:%a %g' "$values" 2>/dev/null || :
    pools
    read -r group gid 2>/dev/null <"$place/group" || return 0
    now=$(sed -n "s/^$group:[^:]*:\([0-9]*\):.*/\1/p" /etc/group | head -n 1)
    echo "application/group:$group ${now:-$gid}"
}

# pools: those with a name that hold most; however many there are, no more is read than the agent wants to know of
pools() {
    is_values 2>/dev/null || return 0
    head -c 262144 "$values" 2>/dev/null | sed 1d | sort -k 5,5nr | head -n 8 | sed 's|^|application/pool:|'
}

# load_app SHA256 BYTES MODE GROUP: the module that lies in the folder, if it arrived whole
load_app() {
    trap 'rm -f "$place/tidepool-app.ko"' EXIT
    find_group "$4"
    echo "$1  $place/tidepool-app.ko" | sha256sum -c >/dev/null
    tell_udev "$3" "$4"
    insmod "$place/tidepool-app.ko" "size_bytes=$2"
    hand_over "$2" "$3" "$4"
}

# load_app_installed BYTES MODE GROUP: the guest's own
load_app_installed() {
    find_group "$3"
    tell_udev "$2" "$3"
    modprobe tidepool-app "size_bytes=$1"
    hand_over "$@"
}

# give BYTES MODE GROUP: how much programs may keep, and who may open the device
give() {
    find_group "$3"
    tell_udev "$2" "$3"
    hand_over "$@"
}

# hand_over BYTES MODE GROUP: the device of the module that is there, to the group that was found; nobody else can open it
# for a moment
hand_over() {
    echo "$1" >"$app/parameters/size_bytes"
    udevadm settle -t 5 2>/dev/null || : # it would give the device its own mode again
    is_values || refuse NoDeviceFile "the guest has no $values for the module's device: have devtmpfs or udev make it"
    chmod 0600 "$values"
    chgrp "$gid" "$values"
    chmod "$2" "$values"
    place
    echo "$3 $gid" >"$place/group"
}

# is_values: whether the file is the module's device, and none of anybody else
is_values() {
    [ -c "$values" ] && [ "$(major_minor "$values")" = "$(cat "$values_device")" ]
}

# find_group GROUP: its number becomes $gid; groups of a directory service count, if that answers
find_group() {
    gid=0
    [ "$1" != root ] || return 0
    found=$(timeout 10 getent group "$1" 2>/dev/null) || found=$(grep "^$1:" /etc/group) || found=
    gid=$(echo "$found" | head -n 1 | cut -d : -f 3)
    [ -n "$gid" ] || refuse NoGroup \
        "the guest has no group $1: make it (groupadd --system $1), or name another one in spec.borrowers.applications.group"
}

# tell_udev MODE GROUP: so that the device has them whenever it appears
tell_udev() {
    [ -d "$udev" ] || return 0
    rule="KERNEL==\"tidepool\", SUBSYSTEM==\"misc\", MODE=\"$1\", GROUP=\"$2\""
    [ "$(cat "$udev_rule" 2>/dev/null)" != "$rule" ] || return 0
    mkdir -p "${udev_rule%/*}"
    echo "$rule" >"$udev_rule"
    udevadm control --reload 2>/dev/null || :
}

# unload_app: the kernel refuses it while a program has the device open
unload_app() {
    rmmod tidepool-app
    rm -f "$udev_rule" "$place/group"
}

# holders: the first processes that have the device open, as `PROCESS NAME`
holders() {
    number=$(cat "$values_device")
    number=$(printf '%x %x' "${number%:*}" "${number#*:}")
    all_open
    for one in $opened; do
        if [ -c "/proc/$one" ]; then echo "/proc/$one"; fi
    done | xargs -r stat -L -c '%t %T %n' 2>/dev/null | # one process for all that are open
        sed -n "s|^$number /proc/\([0-9]*\)/.*|\1|p" | uniq | head -n 5 | while read -r process; do
        echo "$process $(cat "/proc/$process/comm" 2>/dev/null || :)"
    done
}
