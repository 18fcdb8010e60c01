"""MemoryQuota: what who administers a namespace writes to bound what its guests borrow and lend."""

from __future__ import annotations

from pydantic import Field

from tidepool_api.base import ApiModel, ApiObject
from tidepool_api.fields import Bound, rule, rules
from tidepool_api.reading import Understood
from tidepool_api.units import parse_quantity


class QuotaSpec(ApiModel):
    """The most that the guests of a namespace borrow and lend, all pools together."""

    max_borrowed: Bound | None = None
    """The most that guests of this namespace borrow in all, be it from guests of the same namespace; 0 for nothing."""

    max_lent: Bound | None = None
    """The most that guests of this namespace lend in all, be it to guests of the same namespace; 0 for nothing."""

    model_config = {
        "json_schema_extra": rules(
            rule("has(self.maxBorrowed) || has(self.maxLent)", "limits nothing; give maxBorrowed, maxLent or both")
        )
    }

    @property
    def max_borrowed_bytes(self) -> int | None:
        """`maxBorrowed` as a number."""
        return None if self.max_borrowed is None else parse_quantity(self.max_borrowed)

    @property
    def max_lent_bytes(self) -> int | None:
        """`maxLent` as a number."""
        return None if self.max_lent is None else parse_quantity(self.max_lent)


class QuotaStatus(ApiModel):
    """What counts against it: the sizes of all pairings, be they still on their way out."""

    borrowed: str | None = Field(default=None, max_length=20)
    """What guests of this namespace may borrow at present."""

    lent: str | None = Field(default=None, max_length=20)
    """What guests of this namespace may be asked for at present."""


class MemoryQuota(ApiObject):
    """The most that the guests of this namespace borrow and lend together, by the sizes of their pairings.

    Of several in a namespace the smallest bound holds. When one is lowered, the youngest pools give up first, in the
    steps of their spec.maxUnavailable.
    """

    kind: str = "MemoryQuota"
    spec: QuotaSpec
    status: Understood[QuotaStatus] = Field(default_factory=QuotaStatus)

    @property
    def left_to_borrow(self) -> int | None:
        """What may be borrowed beside what is; None where that is not limited."""
        return _left(self.spec.max_borrowed_bytes, self.status.borrowed)

    @property
    def left_to_lend(self) -> int | None:
        """What may be lent beside what is; None where that is not limited."""
        return _left(self.spec.max_lent_bytes, self.status.lent)


def _left(most: int | None, used: str | None) -> int | None:
    return None if most is None else max(0, most - parse_quantity(used or "0"))
