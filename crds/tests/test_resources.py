"""The paths by which the API server has its objects."""

from __future__ import annotations

import pytest

from tidepool_api import ObjectKey, names
from tidepool_api.kube import ours
from tidepool_api.kube.resources import CRDS, LEASES, NODES, PODS


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (NODES.path(), "/api/v1/nodes"),
        (NODES.path(name="n1"), "/api/v1/nodes/n1"),
        (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
        (PODS.path("ns", "x:9477", "proxy/metrics"), "/api/v1/namespaces/ns/pods/x:9477/proxy/metrics"),
        (LEASES.path(*ObjectKey("ns", "x")), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/x"),
        (CRDS.path(*ObjectKey("", "x")), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x"),
        (ours(names.GUESTS).path(), "/apis/tidepool.dev/v1alpha1/memoryguests"),
        (ours(names.QUOTAS).path("a", "q", "status"), "/apis/tidepool.dev/v1alpha1/namespaces/a/memoryquotas/q/status"),
    ],
)
def test_each_object_has_one_path(path: str, expected: str) -> None:
    assert path == expected


def test_what_is_no_name_leads_nowhere_else() -> None:
    """Names are what others have written; they do not say what is read with the rights of whoever looks at them."""
    assert PODS.path("..", ".") == "/api/v1/namespaces/%2E%2E/pods/%2E"
    assert PODS.path("../x?", "a/../b#") == "/api/v1/namespaces/..%2Fx%3F/pods/a%2F..%2Fb%23"
