"""What there is at an API server, and by which path: all that Tidepool reads or writes there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from tidepool_api import names


class Resource(NamedTuple):
    """The objects of one kind."""

    api: str  # its group and version; of the core the version alone
    plural: str

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """That of all objects, of a namespace's, of one, or of a part of one, as its status.

        Namespaces and names come from what others have written: whatever they hold, they lead nowhere else.
        """
        root = f"/apis/{self.api}" if "/" in self.api else f"/api/{self.api}"
        place = f"/namespaces/{_segment(namespace)}" if namespace else ""
        return f"{root}{place}/{self.plural}" + (f"/{_segment(name)}" if name else "") + (part and f"/{part}")


def _segment(text: str) -> str:
    """One segment of a path, whatever it is; `..` would be two fewer."""
    return quote(text, safe=":") if text.strip(".") else text.replace(".", "%2E")


def parse_time(text: str) -> datetime | None:
    """A time as the API server writes it; None for one that Python has not, such as of the year 0, which that takes."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def ours(plural: str) -> Resource:
    """One of Tidepool's own kinds."""
    return Resource(names.API_VERSION, plural)


NAMESPACES = Resource("v1", "namespaces")
NODES = Resource("v1", "nodes")
PODS = Resource("v1", "pods")
EVENTS = Resource("v1", "events")
DEPLOYMENTS = Resource("apps/v1", "deployments")
DAEMONSETS = Resource("apps/v1", "daemonsets")
JOBS = Resource("batch/v1", "jobs")
LEASES = Resource("coordination.k8s.io/v1", "leases")
CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions")
POLICIES = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
INSTANCES = Resource(names.INSTANCE_API, "virtualmachineinstances")

FINAL_PHASES = ("Failed", "Succeeded")  # of pods and of instances: what has ended so is there until somebody deletes it
