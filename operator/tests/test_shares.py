"""Who gets how much: greedy on the curves, fair without them, within bounds (issue 4, item 2: Sizes)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from world import BORROWER, LENDER, MIB, carried_out, guest, mib, pairing, plan, pool, reasons

from tidepool_api.curve import Point
from tidepool_operator.planning.inventory import Node
from tidepool_operator.planning.quotas import Bound, Limits, Side
from tidepool_operator.planning.shares import GRAIN, Claim, Stock, share

LEAST, MOST = 64, 2048


def claim(name: str, *points: tuple[int, float], weight: int = 1, most: int = MOST) -> Claim:
    """A claim with a curve of sizes in MiB and reads a second."""
    return Claim(name, LEAST * MIB, most * MIB, weight, tuple(Point(size * MIB, reads) for size, reads in points))


def in_mib(sizes: dict[str, int]) -> dict[str, int]:
    return {name: size // MIB for name, size in sizes.items()}


def shared(capacity: int, claims: list[Claim]) -> dict[str, int]:
    """The shares of what one lender has that lends nothing yet."""
    return share([Stock("l", capacity, {})], claims).sizes


def test_memory_goes_where_it_answers_most_reads() -> None:
    """The steep part of each curve first; nothing for the flat parts."""
    steep, flat = claim("steep", (512, 1000), (1024, 1100)), claim("flat", (1024, 400), (2048, 500))
    assert in_mib(shared(576 * MIB, [steep, flat])) == {"steep": 512, "flat": 64}
    assert in_mib(shared(1536 * MIB, [steep, flat])) == {"steep": 512, "flat": 1024}
    assert in_mib(shared(8192 * MIB, [steep, flat])) == {"steep": 1024, "flat": 2048}


def test_a_loop_that_just_fits_is_seen_behind_the_flat_part() -> None:
    """Nothing up to 1 GiB, all of it there: the hull leads over the flat part, piece by piece it would not."""
    loop, slow = claim("loop", (512, 0), (1024, 900)), claim("slow", (1024, 300))
    assert in_mib(shared(1088 * MIB, [loop, slow])) == {"loop": 1024, "slow": 64}


def test_who_has_no_curve_gets_a_fair_share() -> None:
    claims = [claim("a"), claim("b"), claim("c", most=128)]
    assert in_mib(shared(1152 * MIB, claims)) == {"a": 512, "b": 512, "c": 128}
    heavy = [claim("a", weight=3), claim("b")]
    assert in_mib(shared(1152 * MIB, heavy)) == {"a": 832, "b": 320}


def test_what_no_curve_gains_by_goes_to_those_without() -> None:
    known, unknown = claim("known", (128, 100)), claim("unknown")
    assert in_mib(shared(1152 * MIB, [known, unknown])) == {"known": 128, "unknown": 1024}


def test_the_minimum_comes_first_and_the_weighty_before_the_others() -> None:
    claims = [claim("a", (2048, 9000)), claim("b"), claim("c", weight=2)]
    assert in_mib(shared(130 * MIB, claims)) == {"a": 64, "b": 0, "c": 64}
    assert in_mib(shared(192 * MIB, claims)) == {"a": 64, "b": 64, "c": 64}


def test_what_nobody_else_could_get_stays_until_somebody_lacks_the_minimum() -> None:
    """Of a lender that needs the rest itself; of two, that one is shared out of which least is lost."""
    rich, poor, new = (Claim(name, 64 * MIB, 2048 * MIB) for name in ("rich", "poor", "new"))
    tight = Stock("tight", 256 * MIB, {"rich": 512 * MIB})
    near = Stock("near", 255 * MIB, {"rich": 256 * MIB})
    free = Stock("free", 64 * MIB, {})
    assert in_mib(share([tight, near, free], [rich, poor]).sizes) == {"rich": 768, "poor": 64}
    made = share([tight, near, free], [rich, poor, new])
    assert made.closed == {"tight"}
    assert in_mib(made.sizes) == {"rich": 512, "poor": 160, "new": 144}


A, B, C = (Claim(name, 64 * MIB, 64 * MIB) for name in "abc")


def test_a_newcomer_takes_the_minimum_from_nobody_who_has_it() -> None:
    """Whatever its name: there would be one with the minimum before and after."""
    for new, there in ((A, B), (B, A)):
        made = share([Stock("l", 64 * MIB, {there.borrower: 256 * MIB})], [A, B])
        assert in_mib(made.sizes) == {there.borrower: 64, new.borrower: 0}


def test_nobody_gives_anything_up_for_who_cannot_take_it() -> None:
    """Be it that it does not take part now, or that what it lacks is no pairing."""
    full = Stock("l", 64 * MIB, {"a": 64 * MIB, "b": 64 * MIB})
    assert share([full], [A, B, replace(C, waits=True)]).closed == {"l"}
    made = share([full, Stock("m", 0, {"c": 60 * MIB})], [A, B, C])
    assert made.closed == {"l", "m"}
    assert in_mib(made.sizes) == {"a": 64, "b": 64, "c": 60}


def test_one_lender_may_do_where_the_first_ones_do_not() -> None:
    """What is taken of one lender makes that of another dearer."""
    lent = Stock("l", 16 * MIB, {"a": 64 * MIB}), Stock("m", 0, {"b": 64 * MIB})
    rich = Stock("n", 80 * MIB, {"a": 64 * MIB, "b": 128 * MIB})
    made = share([*lent, rich], [A, B, C])
    assert made.closed == {"l", "m"}
    assert in_mib(made.sizes) == {"a": 64, "b": 64, "c": 64}


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(LEAST, 1 << 20)), min_size=1, max_size=8))
def test_where_there_is_plenty_everybody_has_the_maximum(some: list[tuple[int, int]]) -> None:
    """Not a byte less, by rounding."""
    claims = [claim(f"b{at}", weight=weight, most=most) for at, (weight, most) in enumerate(some)]
    sizes = shared(16 << 40, claims)
    assert sizes == {one.borrower: one.most for one in claims}


curves = st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 2000)), max_size=6).map(
    lambda points: tuple(
        (size, float(reads))
        for size, reads in zip(sorted({size for size, _ in points}), sorted(reads for _, reads in points), strict=False)
    )
)
claims = st.lists(st.tuples(curves, st.integers(1, 9), st.integers(LEAST, MOST)), min_size=1, max_size=8).map(
    lambda some: [claim(f"b{at}", *curve, weight=weight, most=most) for at, (curve, weight, most) in enumerate(some)]
)


@settings(max_examples=300)
@given(claims, st.integers(0, 16384), st.integers(0, 4096))
def test_bounds_hold_and_more_capacity_gives_no_less(some: list[Claim], capacity: int, more: int) -> None:
    """Monotone in capacity, but for what is rounded: together, and in how many get their minimum."""
    sizes, larger = shared(capacity * MIB, some), shared((capacity + more) * MIB, some)
    assert sum(sizes.values()) <= capacity * MIB
    for one in some:
        assert sizes[one.borrower] == 0 or one.least <= sizes[one.borrower] <= one.most
    assert sum(larger.values()) >= sum(sizes.values()) - GRAIN * len(some)
    assert sum(map(bool, larger.values())) >= sum(map(bool, sizes.values()))
    assert shared(capacity * MIB, list(reversed(some))) == sizes


# --- in a plan --------------------------------------------------------------------------------------------------------


def test_sizes_are_planned_within_their_bounds() -> None:
    """One lender of 1 GiB: the one that gains most has it, the other one keeps its minimum."""
    gains = guest("gains", BORROWER, misses=1000, curve={1024: 0.9})
    other = guest("other", BORROWER, misses=10, curve={1024: 0.9})
    made = plan(pool(between=(128, 2048)), [guest("l", LENDER), gains, other], [])
    assert mib(made) == {("gains", "l"): 896, ("other", "l"): 128}
    assert made.problems == ()


def test_weights_are_by_label() -> None:
    guests = [guest("l", LENDER), guest("a", BORROWER | {"app": "db"}), guest("b", BORROWER)]
    made = plan(pool(between=(64, 2048), weights={"db": 3}), guests, [])
    assert mib(made) == {("a", "l"): 736, ("b", "l"): 288}


def test_sizes_stay_unless_they_are_far_off() -> None:
    """What a little more of lenders or reads would change is not worth a change."""
    b, spread = guest("b", BORROWER), pool(between=(64, 4096))
    made = plan(spread, [guest("l", LENDER, available=1156), b], [])
    assert mib(made) == {("b", "l"): 896}
    for available, size in ((1100, 896), (1200, 896), (2048, 1024)):
        assert mib(plan(spread, [guest("l", LENDER, available=available), b], carried_out(made))) == {("b", "l"): size}


def test_sizes_do_not_shrink_where_nobody_gains_by_it() -> None:
    """The lender needs more itself by now, and what it has lent is more than it could lend anew."""
    one, b = pool(between=(16, 512)), [guest("a", BORROWER), guest("b", BORROWER)]
    before = [pairing("a", "l", 122 * MIB), pairing("b", "l", 100 * MIB)]
    assert carried_out(plan(one, [guest("l", LENDER, available=356), *b], before)) == before
    newcomer = guest("c", BORROWER)
    made = plan(one, [guest("l", LENDER, available=356), *b, newcomer], before)
    assert mib(made) == {("a", "l"): 32, ("b", "l"): 32, ("c", "l"): 32}


def test_under_a_quota_what_a_lender_cannot_lend_anew_does_not_shrink_from_pass_to_pass() -> None:
    """All that is lent fits, and in each pass it was cut down to a part of the part before, for nobody."""
    lenders = [guest("l0", LENDER, total=1024), guest("l1", LENDER, available=200)]
    world = [*lenders, *(guest(name, BORROWER) for name in ("b0", "b1", "b2"))]
    bound = Bound("quota", "ns", Side.LENT, 642 * MIB, room=642 * MIB)
    had = {("b0", "l0"): 192, ("b0", "l1"): 300, ("b1", "l1"): 132, ("b2", "l0"): 16}
    present = [pairing(borrower, lender, size * MIB) for (borrower, lender), size in had.items()]
    passes = []
    for _ in range(5):
        made = plan(pool(between=(16, 772), max_lend=512), world, present, limits=Limits(lent={"": bound}))
        passes.append(mib(made))
        present = carried_out(made)
    assert all(one[guests] >= size for one in passes for guests, size in had.items() if guests[1] == "l1")
    assert sum(passes[-1].values()) >= 624
    assert passes[2:] == passes[1:2] * 3


def test_nobody_keeps_what_is_near_enough_while_another_lacks_the_minimum() -> None:
    """What a little more would change is not worth a change, but for that."""
    steep = guest("steep", BORROWER, misses=1000, curve={1024: 0.9})
    flat = guest("b", BORROWER, misses=10, curve={1024: 0.1})
    made = plan(pool(between=(64, 2048)), [guest("l", LENDER), steep, flat], [pairing("steep", "l", 1024 * MIB)])
    assert mib(made) == {("steep", "l"): 960, ("b", "l"): 64}


def test_who_cannot_have_the_minimum_is_named() -> None:
    guests = [guest("l", LENDER, available=400), guest("a", BORROWER), guest("b", BORROWER)]
    made = plan(pool(between=(128, 2048)), guests, [])
    assert mib(made) == {("a", "l"): 144}
    assert reasons(made) == ["InsufficientCapacity"]
    assert "guest b: each should get at least 128Mi" in made.problems[0].message


def test_a_margin_is_left_to_the_lender_but_not_taken_from_borrowers() -> None:
    guests = [guest("l", LENDER, available=900), guest("b", BORROWER)]
    assert mib(plan(pool(margin=256), guests, [])) == {}
    assert mib(plan(pool(margin=128), guests, [])) == {("b", "l"): 512}
    assert mib(plan(pool(margin=512), guests, [pairing("b", "l", 512 * MIB)])) == {("b", "l"): 512}


def test_the_same_zone_is_nearer_than_another() -> None:
    nodes = {name: Node(zone=zone) for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"))}
    lenders = [guest("far", LENDER, node="n3"), guest("zone", LENDER, node="n2", available=1000)]
    b = guest("b", BORROWER, node="n1")
    assert mib(plan(pool(), [*lenders, b], [], nodes=nodes)) == {("b", "zone"): 512}
    near = guest("near", LENDER, node="n1", available=800)
    assert mib(plan(pool(), [*lenders, near, b], [], nodes=nodes)) == {("b", "near"): 512}
    assert mib(plan(pool(), [*lenders, b], [])) == {("b", "far"): 512}


def test_memory_is_spread_if_asked() -> None:
    """No lender has more than its part, and the rest stays when one goes."""
    guests = [*(guest(f"l{at}", LENDER, node=f"n{at}") for at in range(4)), guest("b", BORROWER, node="n2")]
    made = plan(pool(spread=3), guests, [])
    assert mib(made) == {("b", "l2"): 171, ("b", "l0"): 171, ("b", "l1"): 170}
    rest = plan(pool(spread=3), [one for one in guests if one.name != "l0"], carried_out(made))
    assert mib(rest) == {("b", "l2"): 171, ("b", "l3"): 171, ("b", "l1"): 170}
    two = [one for one in guests if one.name in ("l0", "l1", "b")]
    assert reasons(plan(pool(spread=3), two, [])) == ["InsufficientCapacity"]
