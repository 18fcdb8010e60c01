"""The colours of the page's picture, by computation: seen against what they lie on, and told apart by all who see.

axe looks at text alone. Lines are held here to WCAG 2.2, 1.4.11: a contrast of 3 to 1. Who lacks a kind of cones sees
colours as Machado, Oliveira and Fernandes (2009) compute; two that differ by `TOLD_APART` are told apart at a glance.
"""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

import tidepool_kubectl

Colour = tuple[float, ...]  # red, green and blue, linear, from 0 to 1
CSS = (Path(tidepool_kubectl.__file__).parent / "ui/static/style.css").read_text()
THEMES = dict(zip(("light", "dark"), re.findall(r":root \{(.*?)\}", CSS, re.DOTALL), strict=True))
WORTHS = ("worth0", "worth1", "worth2", "worth3")
GROUNDS = ("paper", "soft")  # of the page, and of a node
LEAST_CONTRAST = 3
TOLD_APART = 25  # CIE 1976; 2.3 is what anybody notices side by side
SEEN = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))  # of sRGB, and its white
WHITE = tuple(map(sum, XYZ))


def encoded(theme: str) -> dict[str, Colour]:
    """The colours of a theme as the style has them, from 0 to 1 each."""
    found = re.findall(r"--(\w+): #(\w{6});", THEMES[theme])
    return {name: tuple(byte / 255 for byte in bytes.fromhex(text)) for name, text in found}


def linear(colour: Colour) -> Colour:
    return tuple(one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in colour)


def times(matrix: tuple[Colour, ...], colour: Colour) -> Colour:
    return tuple(sum(a * b for a, b in zip(row, colour, strict=True)) for row in matrix)


def contrast(one: Colour, other: Colour) -> float:
    """As WCAG defines it: 1 for the same, 21 for black on white."""
    low, high = sorted(times(XYZ, linear(colour))[1] for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour: Colour, seen: tuple[Colour, ...] = SEEN["all cones"]) -> Colour:
    """CIE L*a*b* of a colour as somebody sees it."""
    light = [max(0.0, one) for one in times(seen, linear(colour))]
    x, y, z = (_root(one / white) for one, white in zip(times(XYZ, tuple(light)), WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _root(share: float) -> float:
    return share ** (1 / 3) if share > 0.008856 else 7.787 * share + 16 / 116


def test_the_computation_is_that_of_the_standards() -> None:
    """Known values: black on white, a grey of the standard's own, and the lightness of red."""
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    assert contrast((119 / 255,) * 3, (1, 1, 1)) == pytest.approx(4.48, abs=0.01)
    assert lab((1, 0, 0)) == pytest.approx((53.2, 80.1, 67.2), abs=0.2)


@pytest.mark.parametrize("theme", THEMES)
def test_lines_stand_out_from_what_they_lie_on(theme: str) -> None:
    """Also where it shines through them."""
    (opacity,) = map(float, re.findall(r"path\.pairing \{[^}]*opacity: ([\d.]+)", CSS))
    colours = encoded(theme)
    for ground in (colours[name] for name in GROUNDS):
        for name in WORTHS:
            drawn = tuple(opacity * a + (1 - opacity) * b for a, b in zip(colours[name], ground, strict=True))
            assert contrast(drawn, ground) >= LEAST_CONTRAST, name
        for name in ("line", "bad", "link"):
            assert contrast(colours[name], ground) >= LEAST_CONTRAST, name


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("seen", SEEN)
def test_colours_are_told_apart(theme: str, seen: str) -> None:
    found = {name: lab(encoded(theme)[name], SEEN[seen]) for name in WORTHS}
    for one, other in combinations(WORTHS, 2):
        apart = sum((a - b) ** 2 for a, b in zip(found[one], found[other], strict=True)) ** 0.5
        assert apart >= TOLD_APART, f"{one} and {other}"
