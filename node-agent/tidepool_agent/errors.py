"""What can go wrong with a guest, each with the reason that a condition shows for it.

A guest is not trusted and not reliable: everything here is an ordinary event that becomes a condition, never a crash.
"""

from __future__ import annotations

from tidepool_api import Reason, printable

_REFUSALS = {
    "ModulesDisabled": "the guest's kernel takes no more modules until it is booted again: "
    "kernel.modules_disabled is 1; remove that from its sysctl settings and reboot it",
    "SignatureRequired": "the guest's kernel takes signed modules only (Secure Boot, lockdown or module.sig_enforce), "
    "and the agent's module for it is not signed: fill the module store with --key and --cert, and enrol the "
    "certificate in the guest with mokutil --import",
}


class GuestError(Exception):
    """Something about one guest failed; `reason` is CamelCase for a condition, the text says what to do."""

    reason = "GuestFailed"

    def __str__(self) -> str:
        """In words, some of them perhaps the guest's own, which go to logs, conditions and terminals."""
        return printable("; ".join([super().__str__(), *getattr(self, "__notes__", ())]))


class Unreachable(GuestError):
    """No command can be given to the guest now. It may come back at any time."""

    reason = "NotResponding"

    def __init__(self, message: str, reason: str = "NotResponding") -> None:
        super().__init__(message)
        self.reason = reason


class Paused(Unreachable):
    """The virtual machine does not run now, and nobody can do anything in it until it does."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the virtual machine is paused{why}; what it had goes on when it is resumed", "Paused")


class Frozen(Unreachable):
    """A backup has frozen the guest's file systems: its agent carries out nothing else, and the guest goes on."""

    def __init__(self) -> None:
        super().__init__(
            "the guest agent is frozen, as during a backup: waiting until its file systems are thawed; if that lasts, "
            "`virsh domfsthaw` thaws them",
            "Frozen",
        )


class CommandsBlocked(GuestError):
    """The guest agent is there, but its configuration forbids what we need."""

    reason = "CommandsBlocked"

    def __init__(self, commands: list[str]) -> None:
        super().__init__(
            f"the guest agent refuses {', '.join(commands)}: remove them from block-rpcs (older: blacklist), "
            "or add them to allow-rpcs, in the guest's /etc/qemu/qemu-ga.conf or /etc/sysconfig/qemu-ga, and restart "
            "qemu-guest-agent"
        )


class Excluded(GuestError):
    """Somebody who may has said that nothing is to be run in the guest."""

    reason = Reason.EXCLUDED.value


class Unsupported(GuestError):
    """The guest's system is none that the module is for; nothing is run in it."""

    reason = Reason.SYSTEM_UNSUPPORTED.value


class Nonsense(GuestError):
    """The guest agent answered something that the protocol does not allow."""

    reason = "InvalidAnswer"


class CommandFailed(GuestError):
    """A command was carried out in the guest and failed."""

    reason = "CommandFailed"


class ModuleUnavailable(GuestError):
    """There is no module for the guest's kernel."""

    reason = "NoModuleForKernel"


class UnloadFailed(GuestError):
    """The module could not be taken out of the guest's kernel."""

    reason = "UnloadFailed"


class ModulesRefused(GuestError):
    """The guest's kernel takes no module, or none that we have."""

    def __init__(self, reason: str) -> None:
        super().__init__(_REFUSALS[reason])
        self.reason = reason


class DeliveryFailed(GuestError):
    """The module could not be put into the guest."""

    reason = "DeliveryFailed"


class BuildFailed(GuestError):
    """DKMS could not build the module in the guest."""

    reason = "BuildFailed"


class LoadFailed(GuestError):
    """The guest's kernel refused the module."""

    reason = "LoadFailed"


class LoadDenied(LoadFailed):
    """The guest lets nobody load a module from where its guest agent runs."""

    reason = "LoadDenied"


class UpgradeFailed(GuestError):
    """Another build of the module did not pass in the guest; the one that was there before is back."""

    reason = "UpgradeFailed"


class UpgradeWaits(GuestError):
    """Another build of the module waits until programs of the guest let go of the one that is there."""

    reason = "UpgradeWaits"


class ConfigureFailed(GuestError):
    """The module refused its configuration."""

    reason = "ConfigureFailed"


class DeviceRefused(GuestError):
    """A block device could not be put behind the pool, or taken out of it."""

    def __init__(self, message: str, reason: str = "DeviceFailed") -> None:
        super().__init__(message)
        self.reason = reason


class ApplicationsRefused(DeviceRefused):
    """Programs could not be given memory, or it could not be taken from them."""

    def __init__(self, message: str, reason: str = "ApplicationsFailed") -> None:
        super().__init__(message, reason)
