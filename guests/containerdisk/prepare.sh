#!/bin/sh
# The end of the one boot in which a container disk is prepared: once cloud-init is through, installs the modules that the
# seed brings, forgets all that is this boot's alone, says on the console how it went, and powers off.
set -eu
console=/dev/ttyS0

[ "${1-}" = finish ] || {
    cp "$0" /run/tidepool-prepare
    exec systemd-run --quiet --no-block --unit=tidepool-prepare sh /run/tidepool-prepare finish
}

fail() {
    echo "tidepool: failed: $*" > "$console"
    poweroff
    exit 1
}

install_modules() {
    seed=$(mktemp -d)
    mount -o ro LABEL=CIDATA "$seed" || fail "the seed is not there"
    if [ -d "$seed/modules" ]; then
        [ -d "$seed/modules/$(uname -r)" ] || fail "no module for $(uname -r) in: $(ls "$seed/modules")"
        install -D -m 0644 -t "/lib/modules/$(uname -r)/extra" "$seed/modules/$(uname -r)/"*.ko
        depmod
        modprobe --dry-run tidepool || fail "depmod does not find the module"
    fi
    umount "$seed"
}

# What no two guests may share.
forget() {
    cloud-init clean --logs
    rm -f /etc/ssh/ssh_host_* /var/lib/systemd/random-seed /var/lib/dbus/machine-id
    : > /etc/machine-id
}

cloud-init status --wait > /run/tidepool-status || :
grep -q 'status: done' /run/tidepool-status || fail "$(tr '\n' ' ' < /run/tidepool-status) $(cat /run/cloud-init/result.json)"
[ -x /usr/sbin/qemu-ga ] || [ -x /usr/bin/qemu-ga ] || fail "the QEMU guest agent is not installed"
install_modules
forget
sync
echo "tidepool: prepared" > "$console"
poweroff
