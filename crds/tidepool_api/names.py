"""Every name that more than one part of Tidepool must spell alike."""

from __future__ import annotations

from enum import StrEnum

GROUP = "tidepool.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

POOLS = "memorypools"
PAIRINGS = "memorypairings"
GUESTS = "memoryguests"
GRANTS = "memorygrants"
QUOTAS = "memoryquotas"
CLASSES = "memorypoolclasses"  # of the cluster, in no namespace

DRY_RUN_ANNOTATION = f"{GROUP}/dry-run"  # on a pool, not "false": say what would change, and change nothing
DEFAULT_CLASS_ANNOTATION = f"{GROUP}/is-default-class"  # on a class, "true": that of pools which name none
POOL_LABEL = f"{GROUP}/pool"
LENDER_FINALIZER = f"{GROUP}/lender"
BORROWER_FINALIZER = f"{GROUP}/borrower"
POOL_FINALIZER = f"{GROUP}/pairings"

EXCLUDE_LABEL = f"{GROUP}/exclude"  # on a virtual machine or a namespace: anything but "false" keeps Tidepool out
# On a MemoryGuest, by the operator alone: what stays available in the guest whose idle memory its node's agent gathers.
BALLOON_ANNOTATION = f"{GROUP}/balloon"
LEAVING_ANNOTATION = f"{GROUP}/leaving"  # on a MemoryGuest: since when its agent no longer finds the machine

# What KubeVirt calls a running virtual machine, in the version that Tidepool reads.
INSTANCE_API, INSTANCE_KIND = "kubevirt.io/v1", "VirtualMachineInstance"

OPERATOR_FIELD_MANAGER = "tidepool-operator"
AGENT_FIELD_MANAGER = "tidepool-agent"
LENDER_FIELD_MANAGER = "tidepool-agent-lender"
BORROWER_FIELD_MANAGER = "tidepool-agent-borrower"

DEFAULT_PORT = 7470
AGENT_METRICS_PORT = 9477
OPERATOR_METRICS_PORT = 9478
NODE_LENDER_METRICS_PORT = 9479

OPERATOR_LEASE = "tidepool-operator"
LEASE_PREFIX = "tidepool-agent-"
LEASE_LABELS = {"app.kubernetes.io/name": "tidepool", "app.kubernetes.io/component": "agent"}
LEASE_RENEW_SECONDS = 10
LEASE_STALE_SECONDS = 40


def agent_lease(node: str) -> str:
    """The Lease by which the agent of a node shows that it is alive."""
    return LEASE_PREFIX + node


class Strategy(StrEnum):
    """Whether a page that was read back stays with the lender."""

    NON_INCLUSIVE = "NonInclusive"
    EXCLUSIVE = "Exclusive"


class Encryption(StrEnum):
    """How pages are protected on their way and with the lender."""

    AES_GCM = "AES-GCM"
    NONE = "None"


class Provider(StrEnum):
    """What runs the virtual machine; Node where it is none, but the free memory of a node."""

    KUBEVIRT = "KubeVirt"
    LIBVIRT = "Libvirt"
    NODE = "Node"


class Role(StrEnum):
    """What a guest does at the moment."""

    NONE = "None"
    LENDER = "Lender"
    BORROWER = "Borrower"


class RoleChoice(StrEnum):
    """Who says which guest of a pool lends and which borrows."""

    SELECTED = "Selected"
    AUTO = "Auto"


class Filter(StrEnum):
    """Which evicted pages stay out of the pool."""

    NONE = "None"
    SEQUENTIAL = "Sequential"


class Near(StrEnum):
    """How near to a borrower its lenders have to be."""

    SAME_NODE = "SameNode"
    SAME_ZONE = "SameZone"


class Apart(StrEnum):
    """What no two lenders of a borrower share."""

    NODE = "Node"
    ZONE = "Zone"


class Overcommitted(StrEnum):
    """Whether memory is lent that a lender's host has promised to nobody."""

    EXCLUDE = "Exclude"
    LEND = "Lend"


class SwapBacking(StrEnum):
    """What a borrower's swap area lies on; with None there is none."""

    NONE = "None"
    FILE = "File"
    DEVICE = "Device"


class SwapWrite(StrEnum):
    """When a page that is swapped out is written to what the swap area lies on."""

    THROUGH = "Through"
    BEHIND = "Behind"


class LatencyMode(StrEnum):
    """By what a borrower judges that a lender is too slow: the module's words."""

    OFF = "Off"
    THRESHOLDS = "Thresholds"
    AUTOMATIC = "Automatic"


class PoolPhase(StrEnum):
    """A pool in one word."""

    PENDING = "Pending"
    READY = "Ready"
    DEGRADED = "Degraded"
    PAUSED = "Paused"
    TERMINATING = "Terminating"


class PairingPhase(StrEnum):
    """A pairing in one word."""

    PENDING = "Pending"
    CONNECTING = "Connecting"
    CONNECTED = "Connected"
    UNSTABLE = "Unstable"
    PAUSED = "Paused"
    FAILED = "Failed"
    TERMINATING = "Terminating"

    @property
    def has_pages(self) -> bool:
        """Whether pages flow, be it with interruptions."""
        return self in (PairingPhase.CONNECTED, PairingPhase.UNSTABLE)


class LenderState(StrEnum):
    """The lending end of a pairing, as its agent sees it: the module's words, and what comes before and instead."""

    PENDING = "Pending"
    DISABLED = "Disabled"
    LISTENING = "Listening"
    CONNECTED = "Connected"
    FAILED = "Failed"


class BorrowerState(StrEnum):
    """The borrowing end of a pairing, as its agent sees it."""

    PENDING = "Pending"
    DISABLED = "Disabled"
    CONNECTING = "Connecting"
    CONNECTED = "Connected"
    REJECTED = "Rejected"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """The conditions in use: three that sum up, and those that explain them."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"

    # a guest
    GUEST_AGENT_READY = "GuestAgentReady"
    MODULE_AVAILABLE = "ModuleAvailable"
    MODULE_LOADED = "ModuleLoaded"
    LENDING_PAIRED = "LendingPaired"
    MEMORY_BACKED = "MemoryBacked"
    BALLOON_READY = "BalloonReady"

    # a node lender
    LENDER_RUNNING = "LenderRunning"
    LENDER_FIT = "LenderFit"

    # a guest, and the pool that it borrows from
    DEVICES_READY = "DevicesReady"
    SWAP_READY = "SwapReady"
    APPLICATIONS_READY = "ApplicationsReady"

    # a pool
    SPEC_COMPLETE = "SpecComplete"
    LENDERS_FOUND = "LendersFound"
    LENDERS_GRANTED = "LendersGranted"
    LENDERS_BACKED = "LendersBacked"
    BORROWERS_FOUND = "BorrowersFound"
    ROLES_CONSISTENT = "RolesConsistent"
    LENDERS_ON_NETWORK = "LendersOnNetwork"
    CAPACITY_SUFFICIENT = "CapacitySufficient"
    PLACEMENT_SATISFIED = "PlacementSatisfied"
    QUOTA_SUFFICIENT = "QuotaSufficient"
    GUESTS_READY = "GuestsReady"
    CHANGES_PENDING = "ChangesPending"

    # a pool or a pairing
    WRITE_REFUSED = "WriteRefused"

    # a pairing
    IDENTITIES_EXCHANGED = "IdentitiesExchanged"

    # one side of a pairing
    CONFIGURED = "Configured"


class Reason(StrEnum):
    """The reasons that another part acts on; all others are for people only."""

    AGENT_NOT_RESPONDING = "AgentNotResponding"
    OVERDUE = "Overdue"
    EXCLUDED = "Excluded"
    SYSTEM_UNSUPPORTED = "SystemUnsupported"
    ENDED = "Ended"  # of a MemoryGuest: its virtual machine has, and begins no more; another may have its name
    PAUSED = "Paused"  # of a MemoryGuest: its virtual machine is, and answers when it runs again
    SETTING_UP = "SettingUp"  # of a guest's devices, swap or memory for programs: nothing is wrong yet
    CONNECTION_UNSTABLE = "ConnectionUnstable"  # of a borrower's end: it is set up, and its connection does not last


class Metric(StrEnum):
    """What the operator and the agents export, in base units."""

    POOL_LENT_BYTES = "tidepool_pool_lent_bytes"
    POOL_USED_BYTES = "tidepool_pool_used_bytes"
    POOL_HIT_RATIO = "tidepool_pool_hit_ratio"
    POOL_PAIRINGS = "tidepool_pool_pairings"
    POOL_GUESTS = "tidepool_pool_guests"
    POOL_READY = "tidepool_pool_ready"
    POOL_DEGRADED = "tidepool_pool_degraded"
    POOL_UNATTENDED = "tidepool_pool_unattended_pairings"
    POOL_OVERDUE_IDENTITIES = "tidepool_pool_overdue_identities"
    POOL_REFUSED_WRITES = "tidepool_pool_refused_writes"
    POOL_FORECAST = "tidepool_pool_forecast_saved_disk_reads"
    POOL_UNNEEDED_BYTES = "tidepool_pool_unneeded_bytes"
    GUEST_UNPAIRED_BYTES = "tidepool_guest_unpaired_bytes"
    PLAN_SECONDS = "tidepool_operator_plan_duration_seconds"
    PASS_PLAN_SECONDS = "tidepool_operator_namespace_plan_duration_seconds"
    RECONCILES = "tidepool_operator_reconciles_total"
    RECONCILE_ERRORS = "tidepool_operator_reconcile_errors_total"
    LEADING = "tidepool_operator_leading"
    API_WRITES = "tidepool_operator_api_writes_total"
    AGENT_ERRORS = "tidepool_agent_errors_total"

    GUEST_GETS_HIT = "tidepool_guest_get_hits_total"
    GUEST_GETS_MISSED = "tidepool_guest_get_misses_total"
    GUEST_GETS_LATE = "tidepool_guest_get_late_total"
    GUEST_GETS_CORRUPT = "tidepool_guest_get_corrupt_total"
    GUEST_PUTS = "tidepool_guest_puts_total"
    GUEST_PUTS_DROPPED = "tidepool_guest_puts_dropped_total"
    GUEST_GET_SECONDS = "tidepool_guest_get_duration_seconds"
    GUEST_LENT_BYTES = "tidepool_guest_lent_bytes"
    GUEST_USED_BYTES = "tidepool_guest_used_bytes"
    GUEST_MEMORY_BYTES = "tidepool_guest_memory_bytes"
    GUEST_AVAILABLE_BYTES = "tidepool_guest_memory_available_bytes"
    GUEST_GATHERED_BYTES = "tidepool_guest_gathered_bytes"
    GUEST_WORKING_SET_BYTES = "tidepool_guest_working_set_bytes"
    GUEST_REFAULTS = "tidepool_guest_refaults_total"
    GUEST_PRESSURE = "tidepool_guest_pressure_ratio"
    GUEST_GHOST_READS = "tidepool_guest_ghost_reads_total"
    GUEST_FORECAST = "tidepool_guest_forecast_hit_ratio"
    GUEST_INFO = "tidepool_guest_info"
    GUEST_CONDITION = "tidepool_guest_condition"
    GUEST_STALE = "tidepool_guest_stale"
    GUEST_CONNECTS = "tidepool_guest_connects_total"
    GUEST_CONNECTED = "tidepool_guest_connected"
    GUEST_GRANTED_BYTES = "tidepool_guest_granted_bytes"
    GUEST_DISK_READS = "tidepool_guest_disk_reads_total"
    GUEST_WARNINGS = "tidepool_guest_warnings_total"
    GUEST_VERIFIED = "tidepool_guest_verified_total"
    GUEST_VERIFY_FAILED = "tidepool_guest_verify_failed_total"
    GUEST_RECLAIMED = "tidepool_guest_reclaimed_total"
    GUEST_RECYCLED = "tidepool_guest_recycled_total"
    GUEST_PUT_SECONDS = "tidepool_guest_put_duration_seconds"
    GUEST_PING_SECONDS = "tidepool_guest_ping_duration_seconds"
    GUEST_DISK_READ_SECONDS = "tidepool_guest_disk_read_duration_seconds"
    GUEST_BREAKER_OPEN = "tidepool_guest_breaker_open"
    GUEST_BREAKER_OPENED = "tidepool_guest_breaker_opened_total"
    GUEST_GETS_SKIPPED = "tidepool_guest_get_skipped_total"
    GUEST_DEVICE_BYTES = "tidepool_guest_device_bytes"
    GUEST_DEVICE_LENT = "tidepool_guest_device_lent"
    GUEST_DEVICE_HITS = "tidepool_guest_device_hits_total"
    GUEST_DEVICE_DISK_READS = "tidepool_guest_device_disk_reads_total"
    GUEST_DEVICE_PUTS = "tidepool_guest_device_puts_total"
    GUEST_SWAPPED_BYTES = "tidepool_guest_swapped_bytes"
    GUEST_VALUES_LIMIT_BYTES = "tidepool_guest_values_limit_bytes"
    GUEST_VALUES_BYTES = "tidepool_guest_values_bytes"
    GUEST_VALUES = "tidepool_guest_values"
    GUEST_VALUE_POOLS = "tidepool_guest_value_pools"
    GUEST_VALUES_OPENED = "tidepool_guest_values_opened"
    GUEST_VALUE_HITS = "tidepool_guest_value_hits_total"
    GUEST_VALUE_MISSES = "tidepool_guest_value_misses_total"
    GUEST_VALUES_LOST = "tidepool_guest_values_lost_total"
    GUEST_VALUE_PUTS = "tidepool_guest_value_puts_total"
    GUEST_VALUE_PAGE_HITS = "tidepool_guest_value_page_hits_total"
    GUEST_VALUE_LOCAL_HITS = "tidepool_guest_value_local_hits_total"
    GUEST_VALUES_FRONT_BYTES = "tidepool_guest_values_front_bytes"
    GUEST_VALUE_DISK_READS = "tidepool_guest_value_disk_reads_total"
    GUEST_VALUE_GET_SECONDS = "tidepool_guest_value_get_duration_seconds"
    GUEST_VALUE_PUT_SECONDS = "tidepool_guest_value_put_duration_seconds"
    VALUE_POOL_BYTES = "tidepool_guest_value_pool_bytes"
    VALUE_POOL_HITS = "tidepool_guest_value_pool_hits_total"
    VALUE_POOL_MISSES = "tidepool_guest_value_pool_misses_total"
    VALUE_POOL_LOST = "tidepool_guest_value_pool_lost_total"
    VALUE_POOL_PUTS = "tidepool_guest_value_pool_puts_total"
    VALUE_POOL_LOCAL_HITS = "tidepool_guest_value_pool_local_hits_total"
    VALUE_POOL_FRONT_BYTES = "tidepool_guest_value_pool_front_bytes"
    VALUE_POOL_DISK_READS = "tidepool_guest_value_pool_disk_reads_total"
    VALUE_POOL_GET_SECONDS = "tidepool_guest_value_pool_get_duration_seconds"
    VALUE_POOL_PUT_SECONDS = "tidepool_guest_value_pool_put_duration_seconds"
