"""A real API server refuses what is wrong: it names the field and its value and says what would be right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from objects import CLASS, GRANT, GUEST, MISSING, PAIRING, POOL, QUOTA, changed, within

from tidepool_api import names
from tidepool_api_testing.server import Refused

if TYPE_CHECKING:
    from tidepool_api_testing.server import Server

SPARE = {"matchLabels": {"memory": "spare"}}
LABELS, TERMS = "spec.borrowers.selector.matchLabels", "spec.borrowers.selector.matchExpressions"
LATE = {"resume": "40ms", "stop": "1500us"}
SAME = {"resume": "1ms", "stop": "1000us"}
ODD = {"resume": "fast", "stop": "slow"}
FOREVER = {"resume": "1ms", "stop": "9999999h"}
LONG = {"resume": "1s", "stop": "61s"}
SHORT = {"matchLabels": {"memory": "short"}}
PLANNED = {"selector": SHORT, "minimum": "64Mi", "maximum": "1Gi"}
NO_CLASS = {"className": "", "lenders": {"selector": SPARE}, "borrowers": {"selector": SHORT, "size": "512Mi"}}
AUTO = {"role": "Auto", "selector": SPARE, "lenders": {"maxLend": "1Gi"}, "borrowers": {"size": "512Mi"}}

NODES = {"maxLend": "32Gi"}
LENDING_NODES = "spec.lenders.nodes"
GATHER = f"{LENDING_NODES}.balloon"
NODE = changed(changed(GUEST, "metadata.name", "n1"), "spec.provider", "Node")

SWAP = {"backing": "File", "size": "1Gi"}
BLOCK = {
    "devices": ["/dev/vdb", "/dev/disk/by-id/virtio-data_1.0:x+y"],
    "swap": {"backing": "Device", "device": "/dev/vdc", "size": "4Gi"},
    "force": ["/dev/vdb", "/dev/vdc"],
}

APPS = {"size": "256Mi", "mode": "0660", "group": "redis"}
APP = "spec.borrowers.applications"

MAPPED = {"name": "tidepool-vdb", "below": "/dev/vdb", "sizeBytes": 1 << 30, "lent": True, "hits": 5}

ONE, OTHER, NOBODY = (f"x25519:{digit * 64}" for digit in "1f0")
SELF = PAIRING["spec"] | {side: PAIRING["spec"][side] | {"identity": ONE} for side in ("lender", "borrower")}

WRONG: list[tuple[dict[str, Any], str, Any, str, str]] = [
    (POOL, "spec.lenders.maxLend", "lots", "spec.lenders.maxLend", '"lots" is not an amount of memory; write a number'),
    (POOL, "spec.lenders.maxLend", "-1Gi", "spec.lenders.maxLend", '"-1Gi" is not an amount of memory'),
    (POOL, "spec.lenders.maxLend", "100m", "spec.lenders.maxLend", '"100m" is not an amount of memory'),
    (POOL, "spec.lenders.maxLend", "0", "spec.lenders.maxLend", "0 is too little; the least is 16Mi"),
    (POOL, "spec.lenders.reserve", "1Mi", "spec.lenders.reserve", "1Mi is too little; the least is 16Mi"),
    (POOL, "spec.lenders.reserve", "32Ti", "spec.lenders.reserve", "32Ti is too much; the most is 16Ti"),
    (POOL, "spec.borrowers.size", "15.9Mi", "spec.borrowers.size", "15.9Mi is too little; the least is 16Mi"),
    (POOL, "spec.borrowers.size", "five", "spec.borrowers.size", '"five" is not an amount of memory; write a number'),
    (POOL, "spec.borrowers", PLANNED | {"minimum": "few"}, "spec.borrowers.minimum", '"few" is not an amount of memor'),
    (POOL, "spec.borrowers.size", "9Gi", "spec.borrowers.size", "8 times maxLend (1Gi) is less than size (9Gi)"),
    (POOL, "spec.borrowers.size", "a" * 30, "spec.borrowers.size", "may not be more than 20"),
    (POOL, "spec.lenders.selector", {}, "spec.lenders.selector", "is empty and would select every guest"),
    (POOL, "spec.borrowers.selector", {"matchLabels": {}}, "spec.borrowers.selector", "is empty"),
    (POOL, "spec.borrowers.selector", SPARE, "spec.borrowers.selector", "is the same as spec.lenders.selector"),
    (POOL, LABELS, {"a b": "c"}, LABELS, '"a b" cannot be the key of a label; write up to 63 letters, digits'),
    (POOL, LABELS, {"a": "c d"}, f"{LABELS}[a]", '"c d" cannot be the value of a label; write up to 63 letters'),
    (POOL, TERMS, [{"key": "a b", "operator": "Exists"}], f"{TERMS}[0].key", '"a b" cannot be the key of a label'),
    (POOL, TERMS, [{"key": "Über/a", "operator": "Exists"}], f"{TERMS}[0].key", "behind a DNS name and a slash"),
    (POOL, TERMS, [{"key": "a", "operator": "In", "values": ["b", "-c"]}], f"{TERMS}[0].values[1]", '"-c" cannot be'),
    (
        POOL,
        TERMS,
        [{"key": "a", "operator": "In"}],
        f"{TERMS}[0]",
        "operator In needs values (label a)",
    ),
    (
        POOL,
        TERMS,
        [{"key": "a", "operator": "Exists", "values": ["x"]}],
        f"{TERMS}[0]",
        "operator Exists takes no values (label a)",
    ),
    (
        POOL,
        TERMS,
        [{"key": "a", "operator": "Like", "values": ["x"]}],
        f"{TERMS}[0].operator",
        '"In", "NotIn", "Exists", "DoesNotExist"',
    ),
    (POOL, "spec.encryption", "ROT13", "spec.encryption", 'supported values: "AES-GCM", "None"'),
    (POOL, "spec.lenders.selector", MISSING, "spec.lenders.selector", "say which guests, or which nodes in spec.lend"),
    (POOL, "spec.borrowers.selector", MISSING, "spec.borrowers.selector", "is missing: say which guests"),
    (POOL, "spec.role", "Auto", "spec.selector", "is missing: role Auto chooses among the guests that it matches"),
    (POOL, "spec.role", "Auto", "spec.lenders.selector", "has no place with role Auto"),
    *(
        (POOL, "spec.borrowers.devices", [path], "spec.borrowers.devices[0]", f'"{shown}" is not the path of a device')
        for path, shown in (
            ("/etc/passwd", "/etc/passwd"),
            ("/dev/../etc", "/dev/../etc"),
            ("/dev//vdb", "/dev//vdb"),
            ("/dev/vdb;reboot", "/dev/vdb;reboot"),
            ("/dev/$(reboot)", "/dev/$(reboot)"),
            ("/dev/v db", "/dev/v db"),
            ("/dev/-rf", "/dev/-rf"),
            ("/dev/vdb/", "/dev/vdb/"),
        )
    ),
    (POOL, "spec.borrowers.devices", ["/dev/" + "a" * 56], "spec.borrowers.devices[0]", "may not be more than 55"),
    (POOL, "spec.borrowers.devices", [f"/dev/vd{n}" for n in range(9)], "spec.borrowers.devices", "at most 8 items"),
    (
        POOL,
        "spec.borrowers.devices",
        ["/dev/mapper/tidepool-vdb"],
        "spec.borrowers.devices[0]",
        "Tidepool itself makes",
    ),
    (POOL, "spec.borrowers.devices", ["/dev/vdb"] * 2, "spec.borrowers.devices", "names /dev/vdb twice"),
    (POOL, "spec.borrowers.force", ["/dev/vdb"], "spec.borrowers.force", "neither one of devices nor swap.device"),
    (POOL, "spec.borrowers.swap", {"size": "1Gi"}, "spec.borrowers.swap.backing", "Required value"),
    (POOL, "spec.borrowers.swap", {"backing": "File"}, "spec.borrowers.swap.size", "say how large the swap file"),
    (POOL, "spec.borrowers.swap", SWAP | {"write": "Later"}, "spec.borrowers.swap.write", '"Through", "Behind"'),
    (POOL, "spec.borrowers.swap", {"backing": "Zram"}, "spec.borrowers.swap.backing", '"None", "File", "Device"'),
    (POOL, "spec.borrowers.swap", SWAP | {"size": "8Mi"}, "spec.borrowers.swap.size", "8Mi is too little; the least"),
    (
        POOL,
        "spec.borrowers.swap",
        SWAP | {"size": "2Ti"},
        "spec.borrowers.swap.size",
        "2Ti is too much; the most is 1Ti",
    ),
    (POOL, "spec.borrowers.swap", SWAP | {"size": "much"}, "spec.borrowers.swap.size", '"much" is not an amount'),
    (POOL, "spec.borrowers.swap", SWAP | {"backing": "None"}, "spec.borrowers.swap.size", "no place with backing None"),
    (POOL, "spec.borrowers.swap", {"backing": "Device"}, "spec.borrowers.swap.device", "name the disk or partition"),
    (
        POOL,
        "spec.borrowers.swap",
        SWAP | {"device": "/dev/vdc"},
        "spec.borrowers.swap.device",
        "has no place with backing File",
    ),
    (
        POOL,
        "spec.borrowers",
        POOL["spec"]["borrowers"] | {"devices": ["/dev/vdc"], "swap": {"backing": "Device", "device": "/dev/vdc"}},
        "spec.borrowers.devices",
        "names /dev/vdc, which swap.device names, too",
    ),
    (POOL, APP, {"group": "redis"}, f"{APP}.size", "Required value"),
    (POOL, APP, APPS | {"size": "8Mi"}, f"{APP}.size", "8Mi is too little; the least is 16Mi"),
    (POOL, APP, APPS | {"size": "much"}, f"{APP}.size", '"much" is not an amount of memory'),
    (POOL, APP, APPS | {"size": "513Mi"}, f"{APP}.size", "513Mi is more than size (512Mi), of which it is a part"),
    (POOL, "spec.borrowers", PLANNED | {"applications": APPS | {"size": "2Gi"}}, f"{APP}.size", "more than maximum"),
    (POOL, APP, APPS | {"mode": 432}, f"{APP}.mode", "must be of type string"),
    (POOL, APP, APPS | {"mode": "0666"}, f"{APP}.mode", "0666 lets every user of the guest in; end it in 0"),
    (POOL, APP, APPS | {"mode": "0604"}, f"{APP}.mode", "0604 lets every user of the guest in; end it in 0"),
    (POOL, APP, APPS | {"mode": "0770"}, f"{APP}.mode", '"0770" is no mode of /dev/tidepool; write "0660" for a'),
    (POOL, APP, APPS | {"mode": "660"}, f"{APP}.mode", '"660" is no mode of /dev/tidepool; write "0660" for a'),
    (POOL, APP, APPS | {"mode": "4660"}, f"{APP}.mode", '"4660" is no mode of /dev/tidepool'),
    (POOL, APP, APPS | {"mode": "g=rw"}, f"{APP}.mode", '"g=rw" is no mode of /dev/tidepool'),
    (POOL, APP, APPS | {"mode": "0600"}, f"{APP}.mode", '0600 lets nobody of group redis in; set it to "0660"'),
    (POOL, APP, {"size": "1Gi", "mode": "0660"}, f"{APP}.group", "is missing: mode 0660 lets a group in; name it"),
    (POOL, APP, APPS | {"group": "red is"}, f"{APP}.group", '"red is" is not the name of a group of the guest'),
    (POOL, APP, APPS | {"group": "$(reboot)"}, f"{APP}.group", "is not the name of a group of the guest; write one"),
    (POOL, APP, APPS | {"group": 'a", RUN+="b'}, f"{APP}.group", "is not the name of a group of the guest"),
    (POOL, APP, APPS | {"group": "-R"}, f"{APP}.group", '"-R" is not the name of a group'),
    (POOL, APP, APPS | {"group": "999"}, f"{APP}.group", '"999" is not the name of a group'),
    (POOL, APP, APPS | {"group": "a" * 33}, f"{APP}.group", "may not be more than 32"),
    (PAIRING, "spec.borrower.applications", APPS | {"group": "a;b"}, "spec.borrower.applications.group", '"a;b" is'),
    (PAIRING, "spec.borrower.devices", ["/dev/vdb;id"], "spec.borrower.devices[0]", '"/dev/vdb;id" is not the path'),
    (PAIRING, "spec.borrower.force", ["/dev/vdz"], "spec.borrower.force", "neither one of devices nor swap.device"),
    (POOL, "spec.role", "Random", "spec.role", 'supported values: "Selected", "Auto"'),
    (POOL, "spec.selector", SPARE, "spec.selector", "is for role Auto only; set spec.role to Auto"),
    (POOL, "spec", AUTO | {"selector": {}}, "spec.selector", "is empty and would select every guest"),
    (POOL, "spec.coolDown", "1441m", "spec.coolDown", "1441m is out of range; the cool-down lies between 1s and 1440m"),
    (POOL, "spec.borrowers.maximum", "1Gi", "spec.borrowers", "give either size, or maximum"),
    (POOL, "spec.borrowers.size", MISSING, "spec.borrowers", "give either size, or maximum to have the sizes planned"),
    (POOL, "spec.borrowers.minimum", "64Mi", "spec.borrowers", "minimum and weights go with maximum"),
    (POOL, "spec.borrowers", PLANNED | {"minimum": "2Gi"}, "spec.borrowers.minimum", "minimum (2Gi) is more than maxi"),
    (POOL, "spec.lenders.overcommitted", "Maybe", "spec.lenders.overcommitted", 'supported values: "Exclude", "Lend"'),
    (POOL, "spec.lenders.spread", 9, "spec.lenders.spread", "should be less than or equal to 8"),
    (POOL, "spec.placement.require", "SameRack", "spec.placement.require", 'supported values: "SameNode", "SameZone"'),
    (POOL, "spec.placement.apart", "Rack", "spec.placement.apart", 'supported values: "Node", "Zone"'),
    (
        POOL,
        "spec.placement",
        {"require": "SameZone", "apart": "Zone"},
        "spec.placement",
        "require: SameZone leaves a borrower one place, and apart: Zone asks for several; remove one of them",
    ),
    (
        POOL,
        "spec.borrowers.priorities",
        [{"selector": SHORT}],
        "spec.borrowers.priorities[0].priority",
        "Required value",
    ),
    (
        POOL,
        "spec.borrowers.priorities",
        [{"selector": SHORT, "priority": 1001}],
        "spec.borrowers.priorities[0].priority",
        "should be less than or equal to 1000",
    ),
    (POOL, "spec.maxUnavailable", 0, "spec.maxUnavailable", "0 is neither a number of at least 1 nor a percentage"),
    (POOL, "spec.maxUnavailable", "101%", "spec.maxUnavailable", "101% is neither a number of at least 1 nor"),
    (POOL, "spec", AUTO | {"lenders": {"maxLend": "1Gi", "namespaces": ["a"]}}, "spec.lenders.namespaces", "no place"),
    (POOL, "spec.network", {}, "spec.network", "give either multus, the name of a network, or cidrs"),
    (POOL, "spec.network", {"multus": "a/b", "cidrs": ["fd00::/64"]}, "spec.network", "give either multus"),
    (POOL, "spec.network.multus", "pages", "spec.network.multus", '"pages" is not the name of a Multus network; write'),
    (POOL, "spec.network.cidrs", ["10.0.0.1"], "spec.network.cidrs[0]", '"10.0.0.1" is not a range of IP addresses; w'),
    (POOL, "spec.network.cidrs", ["10.20.1.5/16"], "spec.network.cidrs[0]", "10.20.1.5/16 has bits beyond its prefi"),
    (GRANT, "spec.to", [], "spec.to", "should have at least 1 items"),
    (POOL, "spec", NO_CLASS, "spec.lenders.maxLend", 'is missing, and className is "", so that no class gives it'),
    (POOL, "spec.className", "a" * 254, "spec.className", "may not be more than 253"),
    (CLASS, "spec", MISSING, "spec", "Required value"),
    (
        CLASS,
        "spec.lenders.maxLend",
        "lots",
        "spec.lenders.maxLend",
        '"lots" is not an amount of memory; write a number',
    ),
    (CLASS, "spec.lenders.spread", 9, "spec.lenders.spread", "should be less than or equal to 8"),
    (CLASS, "spec.placement.apart", "Zone", "spec.placement", "require: SameZone leaves a borrower one place, and apa"),
    (CLASS, "spec.network.multus", "a/b", "spec.network", "give either multus, the name of a network, or cidrs"),
    (CLASS, "spec.maxUnavailable", "0%", "spec.maxUnavailable", "0% is neither a number of at least 1 nor a percent"),
    (CLASS, "spec.deadline", "2m", "spec.deadline", "2m is out of range; the deadline lies between 1ms and 60s"),
    (QUOTA, "spec", {}, "spec", "limits nothing; give maxBorrowed, maxLent or both"),
    (QUOTA, "spec.maxLent", "lots", "spec.maxLent", '"lots" is not an amount of memory; write a number'),
    (QUOTA, "spec.maxBorrowed", "32Ti", "spec.maxBorrowed", "32Ti is too much; the most is 16Ti"),
    (GRANT, "spec.selector", {}, "spec.selector", "is empty and would select every guest"),
    (POOL, "spec.strategy", "Both", "spec.strategy", 'supported values: "NonInclusive", "Exclusive"'),
    (POOL, "spec.port", 0, "spec.port", "should be greater than or equal to 1"),
    (POOL, "spec.port", 70000, "spec.port", "should be less than or equal to 65535"),
    (POOL, "spec.deadline", "soon", "spec.deadline", '"soon" is not a duration; write a number with us, ms, s, m or h'),
    (POOL, "spec.deadline", "500us", "spec.deadline", "500us is out of range; the deadline lies between 1ms and 60s"),
    (POOL, "spec.deadline", "2m", "spec.deadline", "2m is out of range"),
    (POOL, "spec.deadline", "9999999h", "spec.deadline", "9999999h is out of range; the deadline lies between 1ms and"),
    (POOL, "spec.coolDown", "99999999999999s", "spec.coolDown", "99999999999999s is out of range; the cool-down lies"),
    (POOL, "spec.latency.long", FOREVER, "spec.latency.long.stop", "9999999h is out of range; a threshold lies"),
    (POOL, "spec.filter", "Random", "spec.filter", 'supported values: "None", "Sequential"'),
    (POOL, "spec.latency.mode", "On", "spec.latency.mode", 'supported values: "Off", "Thresholds", "Automatic"'),
    (POOL, "spec.latency.short", {"stop": "1s"}, "spec.latency.short.resume", "Required value"),
    (POOL, "spec.latency.short", LATE, "spec.latency.short", "resume (40ms) must be less than stop (1500us)"),
    (POOL, "spec.latency.long", SAME, "spec.latency.long", "resume (1ms) must be less than stop (1000us)"),
    (POOL, "spec.latency.long", ODD, "spec.latency.long.resume", '"fast" is not a duration'),
    (POOL, "spec.latency.long", LONG, "spec.latency.long.stop", "61s is out of range; a threshold lies between 1us"),
    (PAIRING, "spec.latency.short", LATE, "spec.latency.short", "must be less than stop"),
    (POOL, "metadata.name", "a" * 64, "<nil>", "is longer than 63 characters"),
    (PAIRING, "spec.borrower.guest", "l", "spec", "the guest l cannot lend to itself"),
    (PAIRING, "spec.lender.address", "lender.local", "spec.lender.address", '"lender.local" is not an IP address'),
    (PAIRING, "spec.size", "8Mi", "spec.size", "8Mi is too little"),
    (
        PAIRING,
        "spec.lender.identity",
        "ab" * 32,
        "spec.lender.identity",
        'ab" is not an identity; write x25519: and 64',
    ),
    (PAIRING, "spec.lender.identity", ONE.upper(), "spec.lender.identity", "64 lowercase hexadecimal digits"),
    (PAIRING, "spec.borrower.identity", ONE[:-1], "spec.borrower.identity", "as tidepool/identity in the guest shows"),
    (PAIRING, "spec.borrower.identity", f"{ONE}0", "spec.borrower.identity", "may not be more than 71"),
    (PAIRING, "spec.borrower.identity", NOBODY, "spec.borrower.identity", "is nobody's identity; leave it out while"),
    (PAIRING, "spec", SELF, "spec.borrower.identity", "is the lender's identity too; give each guest's own"),
    (GUEST, "spec.nodeName", MISSING, "spec.nodeName", "Required value"),
    (GUEST, "spec.provider", "VMware", "spec.provider", 'supported values: "KubeVirt", "Libvirt", "Node"'),
    (GUEST, "spec.provider", "Node", "<nil>", "metadata.name guest is not the node n1, which a MemoryGuest of provid"),
    (POOL, "spec.lenders", {"maxLend": "1Gi"}, "spec.lenders.selector", "or which nodes in spec.lenders.nodes, or set"),
    (POOL, "spec.lenders.nodes", {}, "spec.lenders.nodes.maxLend", "Required value"),
    (POOL, "spec.lenders.nodes", {"maxLend": "x"}, "spec.lenders.nodes.maxLend", '"x" is not an amount of memory'),
    (POOL, "spec.lenders.nodes", NODES | {"reserve": "1Mi"}, "spec.lenders.nodes.reserve", "1Mi is too little; the le"),
    (POOL, "spec.lenders.nodes", NODES | {"selector": {}}, "spec.lenders.nodes.selector", "is empty and would select"),
    (POOL, LENDING_NODES, NODES | {"balloon": {"reserve": "1Gi"}}, f"{GATHER}.selector", "Required value"),
    (
        POOL,
        LENDING_NODES,
        NODES | {"balloon": {"selector": {}}},
        f"{GATHER}.selector",
        "is empty and would select every guest",
    ),
    (
        POOL,
        LENDING_NODES,
        NODES | {"balloon": {"selector": SPARE, "reserve": "1Mi"}},
        f"{GATHER}.reserve",
        "1Mi is too little; the least is 16Mi",
    ),
    (
        POOL,
        LENDING_NODES,
        NODES | {"balloon": {"selector": SHORT}},
        f"{GATHER}.selector",
        "is the same as spec.borrowers.selector, but memory is",
    ),
    (
        POOL,
        LENDING_NODES,
        NODES | {"balloon": {"selector": SPARE}},
        f"{GATHER}.selector",
        "is the same as spec.lenders.selector, but memory is",
    ),
    (POOL, "spec.lenders", {"nodes": NODES, "namespaces": ["a"]}, "spec.lenders.selector", "it says which guests of s"),
    (POOL, "spec", AUTO | {"lenders": {"nodes": NODES, "selector": SHORT}}, "spec.lenders.selector", "has no place wi"),
    (POOL, "spec", AUTO | {"lenders": {"nodes": NODES}, "className": ""}, "spec.lenders.maxLend", "is missing, and cl"),
]


@pytest.mark.parametrize(("base", "path", "value", "field", "message"), WRONG)
def test_wrong_object_is_refused(
    api_server: Server, namespace: str, base: dict[str, Any], path: str, value: Any, field: str, message: str
) -> None:
    """Issue 28, fault 13: the refusal names the field and says what is wrong with its value, in words."""
    with pytest.raises(Refused) as refusal:
        api_server.create(*within(namespace, changed(base, path, value)))
    assert f"{field}:" in str(refusal.value)
    assert message in str(refusal.value)
    assert "rule:" not in str(refusal.value), "says which expression failed, too"


NUMBERS: list[tuple[dict[str, Any], str, dict[str, Any], str]] = [
    (POOL, "spec.lenders", {"selector": SPARE, "maxLend": "1Gi"}, "maxLend"),
    (POOL, "spec.lenders", {"selector": SPARE, "maxLend": "1Gi"}, "reserve"),
    (POOL, "spec.lenders", {"selector": SPARE, "maxLend": "1Gi"}, "margin"),
    (POOL, LENDING_NODES, NODES, "maxLend"),
    (POOL, LENDING_NODES, NODES, "reserve"),
    (POOL, LENDING_NODES, NODES | {"balloon": {"selector": {"matchLabels": {"memory": "idle"}}}}, "balloon.reserve"),
    (POOL, "spec.borrowers", {"selector": SHORT}, "size"),
    (POOL, "spec.borrowers", PLANNED, "minimum"),
    (POOL, "spec.borrowers", PLANNED, "maximum"),
    (POOL, "spec.borrowers.swap", {"backing": "File"}, "size"),
    (POOL, APP, APPS, "size"),
    (POOL, "spec", {}, "deadline"),
    (POOL, "spec", {}, "coolDown"),
    (POOL, "spec.latency.short", {"resume": "1ms", "stop": "2ms"}, "resume"),
    (POOL, "spec.latency.long", {"resume": "1ms", "stop": "2ms"}, "stop"),
    (CLASS, "spec", {}, "deadline"),
    (CLASS, "spec.lenders", {}, "reserve"),
    (PAIRING, "spec", {}, "size"),
    (PAIRING, "spec", {}, "deadline"),
    (QUOTA, "spec", {}, "maxLent"),
]


@pytest.mark.parametrize(("base", "part", "beside", "field"), NUMBERS)
def test_a_number_where_a_unit_belongs_is_told_what_to_write(
    api_server: Server, namespace: str, base: dict[str, Any], part: str, beside: dict[str, Any], field: str
) -> None:
    """Issue 28, fault 13: `size: 512` is a number to YAML; what is said of it is that, once, and nothing beside."""
    body = changed(base, part, beside) if beside else base
    with pytest.raises(Refused) as refusal:
        api_server.create(*within(namespace, changed(body, f"{part}.{field}", 512)))
    said = str(refusal.value)
    assert f"{part}.{field}: Invalid value: 512: 512 is a number without a unit; write one with " in said
    assert said.count("Invalid value") == 1, said
    assert ("such as 200ms" if field in ("deadline", "coolDown", "resume", "stop") else "such as 512Mi") in said


RIGHT: list[tuple[dict[str, Any], str, Any]] = [
    (POOL, "spec.lenders.maxLend", "1.5Gi"),
    (POOL, "spec.lenders.maxLend", "2G"),
    (POOL, "spec.borrowers.size", "8Gi"),
    (POOL, "spec.borrowers.size", "16777216"),
    (POOL, "spec.lenders.reserve", MISSING),
    (POOL, "spec.encryption", "AES-GCM"),
    (POOL, "spec.deadline", "1m"),
    (POOL, "spec.deadline", "1.5ms"),
    (POOL, "spec.deadline", "60000000us"),
    (POOL, "spec.coolDown", "0086400s"),
    (POOL, TERMS, [{"key": "kubevirt.io/domain", "operator": "In", "values": ["", "a.b_c-D"]}]),
    (POOL, "spec.filter", "Sequential"),
    (POOL, "spec.latency", {"mode": "Off"}),
    (POOL, "spec.latency", {"mode": "Thresholds", "short": {"resume": "0.5ms", "stop": "1ms"}}),
    (POOL, "spec", AUTO),
    (POOL, "spec", AUTO | {"lenders": {"maxLend": "1Gi", "nodes": NODES}}),
    (POOL, "spec.lenders", {"nodes": NODES}),
    (POOL, "spec", NO_CLASS | {"lenders": {"nodes": NODES}}),
    (POOL, "spec.lenders.nodes", NODES | {"selector": SPARE, "reserve": "8Gi"}),
    (POOL, "spec.lenders", {"nodes": NODES | {"balloon": {"selector": SPARE, "reserve": "2Gi"}}}),
    (POOL, "spec", AUTO | {"lenders": {"maxLend": "1Gi", "nodes": NODES | {"balloon": {"selector": SHORT}}}}),
    (NODE, "spec.vm.name", "n1"),
    (POOL, "spec.lenders.namespaces", ["a", "b"]),
    (PAIRING, "spec.lender", PAIRING["spec"]["lender"] | {"namespace": "other"}),
    (
        PAIRING,
        "spec.lender",
        PAIRING["spec"]["lender"] | {"guest": PAIRING["spec"]["borrower"]["guest"], "namespace": "other"},
    ),
    (GRANT, "spec.to", [{"namespace": "a"}]),
    (QUOTA, "spec", {"maxLent": "1Mi"}),
    (CLASS, "spec.encryption", "None"),
    (CLASS, "spec", {}),
    (POOL, "spec.className", "gold"),
    (POOL, "spec.className", ""),
    (POOL, "spec.lenders.maxLend", MISSING),
    (POOL, "spec", NO_CLASS | {"className": "gold"}),
    (POOL, "spec.maxUnavailable", 3),
    (POOL, "spec.maxUnavailable", "100%"),
    (POOL, "spec.paused", True),
    (POOL, "spec.borrowers", PLANNED),
    (POOL, "spec.borrowers", PLANNED | {"weights": [{"selector": SPARE, "weight": 100}]}),
    (POOL, "spec.borrowers.priorities", [{"selector": SHORT, "priority": -1}]),
    (POOL, "spec.placement", {"require": "SameZone", "apart": "Node"}),
    (POOL, "spec.placement", {"require": "SameNode"}),
    (POOL, "spec.network", {"multus": "storage/pages.v2"}),
    (POOL, "spec.network", {"cidrs": ["10.20.0.0/16", "fd00::/64", "FD01::/64", "10.0.0.9/32", "0.0.0.0/0"]}),
    (POOL, "spec.lenders.margin", "128Mi"),
    (POOL, "spec.coolDown", "90s"),
    (POOL, "spec.borrowers", POOL["spec"]["borrowers"] | BLOCK),
    (POOL, "spec.borrowers.swap", SWAP),
    (POOL, "spec.borrowers.swap", {"backing": "None"}),
    (POOL, "spec.borrowers.swap", SWAP | {"write": "Behind"}),
    (POOL, APP, APPS),
    (POOL, APP, {"size": "512Mi"}),
    (POOL, APP, {"size": "512Mi", "mode": "0600"}),
    (POOL, APP, {"size": "0.25Gi", "mode": "0640", "group": "_web-cache_1"}),
    (POOL, "spec.borrowers", PLANNED | {"applications": APPS}),
    (PAIRING, "spec.borrower.applications", APPS),
    (POOL, "spec.borrowers.swap", {"backing": "Device", "device": "/dev/disk/by-partlabel/swap"}),
    (POOL, "metadata.name", "a" * 63),
    (
        POOL,
        "spec.borrowers.selector",
        {"matchExpressions": [{"key": "memory", "operator": "NotIn", "values": ["spare"]}]},
    ),
    (POOL, "spec.borrowers.selector", SHORT),
    (PAIRING, "spec.lender.address", "fd00::1"),
    (PAIRING, "spec.lender.otherAddresses", ["fd00::1", "10.0.0.2"]),
    (PAIRING, "spec.lender.identity", ONE),
    (PAIRING, "spec.borrower.identity", OTHER),
    (PAIRING, "spec.lender.network", {"cidrs": ["10.0.0.0/8"]}),
    (GUEST, "status", {"addresses": ["10.0.0.1"], "interfaces": [{"name": "default"}, {"multus": "a/b"}]}),
    (GUEST, "status", {"applications": {"sizeBytes": 1 << 30, "mode": "0660", "group": "redis", "hits": 5}}),
    (GUEST, "status", {"devices": [MAPPED], "swap": MAPPED | {"name": "tidepool.swap", "swappedBytes": 5}}),
]


@pytest.mark.parametrize(("base", "path", "value"), RIGHT)
def test_right_object_is_taken(api_server: Server, namespace: str, base: dict[str, Any], path: str, value: Any) -> None:
    """What looks unusual and is right is taken as it is."""
    api_server.create(*within(namespace, changed(base, path, value)))


def test_defaults_are_filled_in(api_server: Server, namespace: str) -> None:
    """The shortest pool gets the defaults of what is its own, and nothing that its class might say otherwise.

    Issue 28, fault 13: the thresholds that a mode brings are those that the documents show.
    """
    lenders, borrowers = {"selector": SPARE}, {"selector": SHORT, "size": "512Mi"}
    shortest = changed(POOL, "spec", {"lenders": lenders, "borrowers": borrowers})
    api_server.create(*within(namespace, shortest, changed(CLASS, "spec", {"latency": {"mode": "Thresholds"}})))
    spec = api_server.get("-n", namespace, "tpool", "pool")["spec"]
    assert spec == {"lenders": lenders, "borrowers": borrowers, "role": "Selected", "paused": False}
    assert api_server.get("tclass", namespace)["spec"] == {
        "latency": {
            "mode": "Thresholds",
            "short": {"resume": "1500us", "stop": "40ms"},
            "long": {"resume": "1ms", "stop": "1500us"},
        }
    }


def _tenant(namespace: str) -> list[dict[str, Any]]:
    """Rights of a user `tenant` to all of Tidepool's objects in a namespace, and to none beyond it."""
    api, kind = "rbac.authorization.k8s.io", "ClusterRole"
    rule = {"apiGroups": [names.GROUP], "resources": ["*"], "verbs": ["*"]}
    head = {"apiVersion": f"{api}/v1", "metadata": {"name": f"tenant-of-{namespace}", "namespace": namespace}}
    reference = {"apiGroup": api, "kind": kind, "name": f"tenant-of-{namespace}"}
    who = [{"apiGroup": api, "kind": "User", "name": "tenant"}]
    role = {**head, "metadata": {"name": reference["name"]}, "kind": kind, "rules": [rule]}
    return [role, {**head, "kind": "RoleBinding", "roleRef": reference, "subjects": who}]


def test_all_of_a_namespace_is_nothing_of_the_cluster(api_server: Server, namespace: str) -> None:
    """`kubectl get tidepool` is for who has rights in a namespace alone; `delete tidepool --all` spares the classes."""
    api_server.create(*_tenant(namespace), *within(namespace, POOL, PAIRING, GUEST, GRANT, QUOTA, CLASS))
    as_tenant = ("--as=tenant", "-n", namespace)
    kinds = {one["kind"] for one in api_server.get(*as_tenant, "tidepool")["items"]}
    assert kinds == {"MemoryPool", "MemoryPairing", "MemoryGuest", "MemoryGrant", "MemoryQuota"}
    api_server.kubectl("delete", "tidepool", "--all", "-n", namespace)
    assert api_server.get("-n", namespace, "tidepool")["items"] == []
    assert api_server.get("tclass", namespace)["metadata"]["name"] == namespace


@pytest.mark.parametrize("path", ["selector", "role", "paused", "className", "lenders.namespaces", "borrowers.size"])
def test_who_takes_part_is_for_the_pool_to_say(api_server: Server, namespace: str, path: str) -> None:
    """A class has no such field, and kubectl says so."""
    body = within(namespace, changed(CLASS, f"spec.{path}", "x"))
    with pytest.raises(Refused, match=f'unknown field "{path.rpartition(".")[2]}"'):
        api_server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", body=body)


@pytest.mark.parametrize("path", ["pool", "lender.guest", "borrower.guest"])
def test_pairing_keeps_its_identity(api_server: Server, namespace: str, path: str) -> None:
    """Who lends to whom, and for which pool, is settled at creation."""
    api_server.create(*within(namespace, PAIRING))
    with pytest.raises(Refused, match="cannot change; delete the pairing and let the pool make another"):
        _patch(api_server, namespace, "tpair", "pool.b.l", changed({}, f"spec.{path}", "other"))


def test_pairing_follows_its_guests(api_server: Server, namespace: str) -> None:
    """Nodes, address, size, thresholds and identities change in place."""
    api_server.create(*within(namespace, PAIRING))
    lender = {"nodeName": "n3", "address": "10.0.0.9", "port": 7471}
    change = {"lender": lender, "size": "256Mi", "deadline": "1s", "strategy": "Exclusive"}
    for one, other in ((ONE, OTHER), (OTHER, ONE)):
        ends = {"lender": lender | {"identity": one}, "borrower": {"identity": other}}
        _patch(api_server, namespace, "tpair", "pool.b.l", {"spec": change | ends})
    assert api_server.get("-n", namespace, "tpair", "pool.b.l")["spec"]["lender"]["address"] == "10.0.0.9"


def test_agents_watch_only_their_own(api_server: Server, namespace: str) -> None:
    """Guests are selected by node, pairings by the node of either end."""
    api_server.create(*within(namespace, PAIRING, GUEST))
    for kind, field, node in (
        ("tguest", "spec.nodeName", "n1"),
        ("tpair", "spec.lender.nodeName", "n1"),
        ("tpair", "spec.borrower.nodeName", "n2"),
    ):
        assert len(api_server.get("-n", namespace, kind, f"--field-selector={field}={node}")["items"]) == 1
        assert api_server.get("-n", namespace, kind, f"--field-selector={field}=other")["items"] == []


def test_both_ends_apply_their_own_status(api_server: Server, namespace: str) -> None:
    """Two field managers own a block each, and neither takes away what the other or the operator wrote."""
    api_server.create(*within(namespace, PAIRING))
    head = {"apiVersion": names.API_VERSION, "kind": "MemoryPairing"}
    meta = {"name": "pool.b.l", "namespace": namespace}
    for manager, status in (
        (names.LENDER_FIELD_MANAGER, {"lender": {"state": "Listening", "bootID": "1"}}),
        (names.BORROWER_FIELD_MANAGER, {"borrower": {"state": "Connected", "hitRatio": "0.97"}}),
        (names.LENDER_FIELD_MANAGER, {"lender": {"state": "Connected"}}),
    ):
        api_server.apply_status({**head, "metadata": meta, "status": status}, manager)
    status = api_server.get("-n", namespace, "tpair", "pool.b.l")["status"]
    assert status == {"lender": {"state": "Connected"}, "borrower": {"state": "Connected", "hitRatio": "0.97"}}


def test_an_identity_in_a_status_is_one(api_server: Server, namespace: str) -> None:
    """What an agent reports of its guest and of its end is held to the same form, so that a spec can take it over."""
    api_server.create(*within(namespace, PAIRING, GUEST))
    head = {"apiVersion": names.API_VERSION}
    guest = head | {"kind": "MemoryGuest", "metadata": {"name": GUEST["metadata"]["name"], "namespace": namespace}}
    pairing = head | {"kind": "MemoryPairing", "metadata": {"name": "pool.b.l", "namespace": namespace}}
    for digits, taken in (("", False), ("0" * 64, False), ("A" * 64, False), ("a" * 64, True)):
        identity = f"x25519:{digits}"
        for one, status in (
            (guest, {"identity": identity}),
            (pairing, {"lender": {"peerIdentity": identity}}),
            (pairing, {"borrower": {"peerIdentity": identity}}),
        ):
            if taken:
                api_server.apply_status(one | {"status": status}, names.AGENT_FIELD_MANAGER)
                continue
            with pytest.raises(Refused, match="dentity: Invalid value"):
                api_server.apply_status(one | {"status": status}, names.AGENT_FIELD_MANAGER)


COLUMNS = {
    "tpool": ["NAME", "PHASE", "LENDERS", "BORROWERS", "LENT", "USED", "HIT RATIO", "AGE"],
    "tpair": ["NAME", "LENDER", "BORROWER", "SIZE", "PHASE", "HIT RATIO", "AGE"],
    "tguest": ["NAME", "PROVIDER", "NODE", "ROLE", "KERNEL", "MODULE", "MEMORY", "READY", "AGE"],
    "tgrant": ["NAME", "TO", "PAIRINGS", "LENT", "AGE"],
    "tclass": ["NAME", "DEFAULT", "MAX LEND", "RESERVE", "ENCRYPTION", "AGE"],
    "tquota": ["NAME", "BORROWED", "MAX BORROWED", "LENT", "MAX LENT", "AGE"],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns(api_server: Server, namespace: str, kind: str) -> None:
    """Issue 28, fault 14: `kubectl get` with a short name of our own shows the columns worth reading."""
    api_server.create(*within(namespace, POOL, PAIRING, GUEST, GRANT, QUOTA, CLASS))
    header = api_server.kubectl("get", "-n", namespace, kind).splitlines()[0]
    assert [column.strip() for column in header.split("  ") if column.strip()] == COLUMNS[kind]


def _patch(server: Server, namespace: str, kind: str, name: str, change: dict[str, Any]) -> None:
    server.kubectl("patch", "-n", namespace, kind, name, "--type=merge", "-p", json.dumps(change))
