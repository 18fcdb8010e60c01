"""The API of Tidepool: its Kubernetes objects as typed models, and every name that the parts share."""

from tidepool_api.base import ApiModel, ApiObject, ObjectMeta, OwnerReference, Time, now
from tidepool_api.conditions import Condition, Status, condition, find, is_true, merge, without
from tidepool_api.fields import Requirement, Selector, format_ratio
from tidepool_api.guest import GuestMemory, GuestSpec, GuestStatus, MemoryGuest, VirtualMachine
from tidepool_api.latency import Latency, Thresholds
from tidepool_api.names import (
    BorrowerState,
    ConditionType,
    Encryption,
    Filter,
    LatencyMode,
    LenderState,
    Metric,
    PairingPhase,
    PoolPhase,
    Provider,
    Reason,
    Role,
    Strategy,
)
from tidepool_api.pairing import (
    BorrowerEnd,
    BorrowerStatus,
    KeySecret,
    LenderEnd,
    LenderStatus,
    MemoryPairing,
    PairingSpec,
    PairingStatus,
)
from tidepool_api.pool import Borrowers, Lenders, MemoryPool, PoolSpec, PoolStatus
from tidepool_api.units import format_quantity, parse_duration, parse_quantity, to_mib

__version__ = "0.1.0"

__all__ = [
    "ApiModel",
    "ApiObject",
    "BorrowerEnd",
    "BorrowerState",
    "BorrowerStatus",
    "Borrowers",
    "Condition",
    "ConditionType",
    "Encryption",
    "Filter",
    "GuestMemory",
    "GuestSpec",
    "GuestStatus",
    "KeySecret",
    "Latency",
    "LatencyMode",
    "LenderEnd",
    "LenderState",
    "LenderStatus",
    "Lenders",
    "MemoryGuest",
    "MemoryPairing",
    "MemoryPool",
    "Metric",
    "ObjectMeta",
    "OwnerReference",
    "PairingPhase",
    "PairingSpec",
    "PairingStatus",
    "PoolPhase",
    "PoolSpec",
    "PoolStatus",
    "Provider",
    "Reason",
    "Requirement",
    "Role",
    "Selector",
    "Status",
    "Strategy",
    "Thresholds",
    "Time",
    "VirtualMachine",
    "condition",
    "find",
    "format_quantity",
    "format_ratio",
    "is_true",
    "merge",
    "now",
    "parse_duration",
    "parse_quantity",
    "to_mib",
    "without",
]
