"""The API server for agent, operator, its Jobs and the plugin: one client, one watch, and the ways to log in.

The only part of `tidepool_api` that needs urllib3; the models do without it, and know nothing of it.
"""

from tidepool_api.kube.access import ACCOUNT, Access, NoAccess
from tidepool_api.kube.client import APPLY, MERGE, NAMED, Api, Listing, Object, Refused, named
from tidepool_api.kube.resources import Resource, ours
from tidepool_api.kube.watch import Copy

__all__ = [
    "ACCOUNT",
    "APPLY",
    "MERGE",
    "NAMED",
    "Access",
    "Api",
    "Copy",
    "Listing",
    "NoAccess",
    "Object",
    "Refused",
    "Resource",
    "named",
    "ours",
]
