"""What a libvirt domain says about itself: pure, from its XML to a machine.

A MemoryGuest of a domain has the domain's UUID as its name: it is the same on every host, and stays when somebody
renames the machine. Its namespace decides with whom it can share memory. A Nova instance belongs to the namespace of
its project, `nova-PROJECT-UUID`, and projects share nothing; every other domain to the one namespace that the agent is
told. The names that people gave are labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tidepool_agent.addresses import interface
from tidepool_agent.provider import Machine
from tidepool_api import Provider, names

NAMESPACES = {"nova": "http://openstack.org/xmlns/libvirt/nova/1.1"}
# Nova writes a newer number when it adds something; what we read has been there since 1.0.
_NOVA = re.compile(r"http://openstack\.org/xmlns/libvirt/nova/1\.[0-9]+")
PROJECT_NAMESPACE = "nova-"
_PROJECT = re.compile(r"[0-9a-f-]{1,58}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]+")
NAME_LABEL = f"{names.GROUP}/vm"


def machine(
    xml: str, namespace: str, leases: Mapping[str, Sequence[str]] | None = None, *, migrating: bool = False
) -> Machine | None:
    """The machine that a domain's XML describes; None if it lacks what every domain of libvirt has.

    Args:
        xml: as libvirt gives it.
        namespace: where domains go that are no Nova instances.
        leases: the addresses that the host itself knows, by interface; those of Nova's ports come first.
        migrating: whether its memory is being copied to another host.
    """
    root = _parsed(xml)
    uuid, domain = (root.findtext("uuid", ""), root.findtext("name", "")) if root is not None else ("", "")
    if root is None or not _UUID.fullmatch(uuid) or not domain:
        return None
    nova = _nova(root)
    interfaces = {**_ports(nova), **(leases or {})}
    project = _attribute(nova, "nova:owner/nova:project", "uuid")
    return Machine(
        provider=Provider.LIBVIRT,
        namespace=PROJECT_NAMESPACE + project if _PROJECT.fullmatch(project) else namespace,
        name=uuid,
        title=(_text(nova, "nova:name") or domain)[:253],
        uid=uuid,
        domain=domain,
        place="host",
        addresses=tuple(dict.fromkeys(address for each in interfaces.values() for address in each)),
        interfaces=tuple(interface(name, each) for name, each in interfaces.items()),
        labels=_labels(domain, nova),
        migrating=migrating,
    )


def _parsed(xml: str) -> Element | None:
    try:
        return ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return None


def _nova(root: Element) -> Element | None:
    """Nova's part of the metadata, in whichever version of its namespace, renamed to one."""
    for element in root.findall("metadata/*"):
        space, _, word = element.tag.lstrip("{").partition("}")
        if word == "instance" and _NOVA.fullmatch(space):
            for one in element.iter():
                one.tag = one.tag.replace(space, NAMESPACES["nova"])
            return element
    return None


def _ports(nova: Element | None) -> dict[str, list[str]]:
    """The addresses of each of its ports, by their UUIDs."""
    ports = [] if nova is None else nova.findall("nova:ports/nova:port", NAMESPACES)
    return {port.get("uuid", ""): _fixed(port) for port in ports}


def _fixed(port: Element) -> list[str]:
    return [address for ip in port.findall("nova:ip[@type='fixed']", NAMESPACES) if (address := ip.get("address"))]


def _labels(domain: str, nova: Element | None) -> dict[str, str]:
    """Whatever can be selected by, as label values allow it: `m1.small` stays, `web 1` becomes `web-1`."""
    found = {
        NAME_LABEL: _text(nova, "nova:name") or domain,
        f"{names.GROUP}/nova-flavor": _attribute(nova, "nova:flavor", "name"),
        f"{names.GROUP}/nova-project": _text(nova, "nova:owner/nova:project"),
        f"{names.GROUP}/nova-user": _text(nova, "nova:owner/nova:user"),
        f"{names.GROUP}/nova-image": _attribute(nova, "nova:root[@type='image']", "uuid"),
    }
    return {label: value for label, text in found.items() if (value := label_value(text))}


def label_value(text: str) -> str:
    """The text as a label's value."""
    return _NOT_IN_LABELS.sub("-", text)[:63].strip("._-")


def _text(nova: Element | None, path: str) -> str:
    return "" if nova is None else nova.findtext(path, "", NAMESPACES).strip()


def _attribute(nova: Element | None, path: str, name: str) -> str:
    element = None if nova is None else nova.find(path, NAMESPACES)
    return "" if element is None else element.get(name, "")
