"""Domains of a host's own libvirt as a source of guests: what their XML says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidepool_agent import nova
from tidepool_api import Provider

UUID = "0a1b2c3d-0000-4000-8000-00000000beef"
PROJECT = "5b1c8f0c9d3e4a0f8f3b6a1d2c4e6f70"


def metadata(version: str = "1.1", name: str = "web 1") -> str:
    """What Nova 27 writes into a domain."""
    return f"""
      <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/{version}">
        <nova:package version="27.1.0"/>
        <nova:name>{name}</nova:name>
        <nova:creationTime>2026-11-21 10:00:00</nova:creationTime>
        <nova:flavor name="m1.small"><nova:memory>2048</nova:memory><nova:vcpus>1</nova:vcpus></nova:flavor>
        <nova:owner>
          <nova:user uuid="d1d1">alice@example.org</nova:user>
          <nova:project uuid="{PROJECT}">shop</nova:project>
        </nova:owner>
        <nova:root type="image" uuid="aaaa-bbbb"/>
        <nova:ports>
          <nova:port uuid="p1">
            <nova:ip type="fixed" address="10.0.0.5" ipVersion="4"/>
            <nova:ip type="floating" address="203.0.113.9" ipVersion="4"/>
          </nova:port>
          <nova:port uuid="p2"><nova:ip type="fixed" address="2001:db8::5" ipVersion="6"/></nova:port>
        </nova:ports>
      </nova:instance>"""


def domain(inside: str = "") -> str:
    return f"<domain type='kvm'><name>instance-0000002a</name><uuid>{UUID}</uuid><metadata>{inside}</metadata></domain>"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_an_instance_of_nova_belongs_to_its_project(version: str) -> None:
    machine = nova.machine(domain(metadata(version)), "libvirt", {"vnet0": ["10.0.0.5", "192.0.2.1"]})
    assert machine is not None
    assert (machine.provider, machine.key) == (Provider.LIBVIRT, (f"nova-{PROJECT}", UUID))
    assert (machine.uid, machine.domain, machine.title) == (UUID, "instance-0000002a", "web 1")
    assert machine.addresses == ("10.0.0.5", "2001:db8::5", "192.0.2.1")
    assert {one.name: one.addresses for one in machine.interfaces} == {
        "p1": ("10.0.0.5",),
        "p2": ("2001:db8::5",),
        "vnet0": ("10.0.0.5", "192.0.2.1"),
    }
    assert dict(machine.labels) == {
        "tidepool.dev/vm": "web-1",
        "tidepool.dev/nova-flavor": "m1.small",
        "tidepool.dev/nova-project": "shop",
        "tidepool.dev/nova-user": "alice-example.org",
        "tidepool.dev/nova-image": "aaaa-bbbb",
    }


def test_another_domain_belongs_to_the_namespace_that_the_agent_is_told() -> None:
    machine = nova.machine(domain("<x:other xmlns:x='https://example.org'/>"), "libvirt")
    assert machine is not None
    assert (machine.key, machine.title) == (("libvirt", UUID), "instance-0000002a")
    assert dict(machine.labels) == {"tidepool.dev/vm": "instance-0000002a"}


def test_an_address_that_is_none_for_others_is_left_out() -> None:
    """Also one that is longer than any: one domain keeps no other from its agent."""
    for useless in ("2001:db8::5%eth0", f"2001:db8::5%{'x' * 99}"):
        machine = nova.machine(domain(metadata().replace("2001:db8::5", useless)), "libvirt", {"vnet0": [useless]})
        assert machine is not None
        assert [one.addresses for one in machine.interfaces] == [("10.0.0.5",), (), ()]


def test_a_project_that_is_none_names_no_namespace() -> None:
    evil = metadata().replace(PROJECT, "x/../kube-system")
    machine = nova.machine(domain(evil), "libvirt")
    assert machine is not None
    assert machine.namespace == "libvirt"


@pytest.mark.parametrize(
    "xml", ["", "<domain>", "<domain/>", domain().replace(UUID, "no"), domain().replace("name", "n")]
)
def test_what_is_no_domain_is_no_machine(xml: str) -> None:
    assert nova.machine(xml, "libvirt") is None


@given(st.text())
def test_any_name_becomes_a_label_that_kubernetes_takes(text: str) -> None:
    value = nova.label_value(text)
    assert len(value) <= 63
    assert value == "" or (value[0].isalnum() and value[-1].isalnum() and value.isascii())
