"""Whom a pool is worth something, by label at once instead of by a look at each guest (issue 28, fault 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from objects import GUEST, POOL

from tidepool_api import MemoryGuest, MemoryPool, Role, Selector
from tidepool_api.curve import curve_of
from tidepool_api.labels import Labelled
from tidepool_api.names import RoleChoice
from tidepool_api.worth import Guests, of_pool

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS, VALUES = ("app", "tier"), ("a", "b", "c")
some_labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@st.composite
def requirements(draw: st.DrawFn) -> dict[str, Any]:
    """A condition on labels."""
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")))
    values = {"values": draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=2))}
    return {"key": draw(st.sampled_from(KEYS)), "operator": operator, **(values if "In" in operator else {})}


selectors = st.fixed_dictionaries(
    {"matchLabels": some_labels, "matchExpressions": st.lists(requirements(), max_size=2)},
)


@given(selector=selectors, objects=st.dictionaries(st.integers(0, 20), some_labels))
def test_an_index_finds_what_a_look_at_each_would(
    selector: dict[str, Any], objects: Mapping[int, dict[str, str]]
) -> None:
    wanted = Selector.model_validate(selector)
    found = Labelled(objects.items()).matching(wanted)
    assert found == {key for key, labels in objects.items() if wanted.matches(labels)}


@st.composite
def guests(draw: st.DrawFn) -> list[MemoryGuest]:
    """Guests of two namespaces that lend, borrow, do nothing, are kept out or are over."""

    def one(at: int) -> MemoryGuest:
        metadata = {"name": f"g{at}", "namespace": draw(st.sampled_from(("ns", "other"))), "labels": draw(some_labels)}
        why = draw(st.sampled_from(("Reachable", "Excluded", "Ended")))
        condition = {"type": "Ready", "status": "True" if why == "Reachable" else "False", "reason": why}
        ratio, references = draw(st.sampled_from(("0.00", "0.50"))), draw(st.sampled_from((10, 5000)))
        status = {
            "role": draw(st.sampled_from([role.value for role in Role])),
            "missesPerSecond": draw(st.sampled_from((0, 400))),
            "curve": [{"sizeBytes": 512 << 20, "hitRatio": ratio}],
            "curveReferences": references,
            "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }
        return MemoryGuest.parse({**GUEST, "metadata": metadata, "status": status})

    return [one(at) for at in range(draw(st.integers(0, 8)))]


@st.composite
def pools(draw: st.DrawFn) -> MemoryPool:
    """A pool that says who borrows, or sees for itself."""
    wanted, sizes = draw(selectors.filter(any_of)), {"size": "512Mi"}
    spec: dict[str, Any] = {"lenders": {"maxLend": "1Gi"}, "borrowers": sizes, "role": "Auto", "selector": wanted}
    if draw(st.booleans()):
        lenders = POOL["spec"]["lenders"]
        spec = {"lenders": lenders, "borrowers": {"selector": wanted, **sizes}}
    return MemoryPool.parse({**POOL, "metadata": {"name": "pool", "namespace": "ns"}, "spec": spec})


def any_of(selector: Mapping[str, Any]) -> bool:
    """Whether it says something."""
    return any(selector.values())


@given(pool=pools(), those=guests())
def test_a_pool_is_worth_something_to_whom_a_look_at_each_would_find(
    pool: MemoryPool, those: list[MemoryGuest]
) -> None:
    """Idle guests of its own namespace which it selects to borrow, or which an Auto pool would see a gain for."""
    assert of_pool(pool, Guests(those), (), [512 << 20]).keys() == {one.key for one in those if may_borrow(pool, one)}


def may_borrow(pool: MemoryPool, guest: MemoryGuest) -> bool:
    """The naive way."""
    selector = pool.spec.borrowers.selector or pool.spec.selector
    if guest.namespace != pool.namespace or guest.is_excluded or guest.has_ended:
        return False
    if guest.status.role is not Role.NONE or selector is None or not selector.matches(guest.metadata.labels):
        return False
    curve = curve_of(guest.status)
    return pool.spec.role is RoleChoice.SELECTED or (bool(curve) and curve[-1].reads > 0)
