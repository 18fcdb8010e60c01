"""Field types that say what is allowed, once: to pydantic here, and to the API server as CEL rules.

A message names the value and what would be right; the API server puts the path of the field before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_network
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from tidepool_api.base import ApiModel
from tidepool_api.units import format_quantity, parse_duration, parse_quantity

VALIDATIONS = "x-kubernetes-validations"
INT_OR_STRING = "x-kubernetes-int-or-string"
IS_TEXT = "type(self) == string"
FORM = "form"  # beside what the API server knows: a sentence for who asks it about the field

LEAST_MEMORY = "16Mi"
MOST_MEMORY = "16Ti"
MOST_SWAP = "1Ti"
MOST_DEVICE_PATH = 55  # so that device-mapper takes its mapped name and the UUID of that, escaped as it may be
MOST_BYTES = 1 << 60  # of a figure
MOST_COUNT = (1 << 63) - 1
LEAST_DEADLINE = "1ms"
MOST_DEADLINE = "60s"
LEAST_THRESHOLD = "1us"
MOST_THRESHOLD = "60s"
LEAST_PAUSE = "1s"
MOST_PAUSE = "1440m"
MOST_NETWORK_NAME = 317  # a namespace, a slash, a name

_QUANTITY_PATTERN = r"^[0-9]+(\\.[0-9]+)?([KMGT]i|[kMGT])?$"
_AMOUNT_FORM = "Ki, Mi, Gi or Ti, such as 512Mi"
_DURATION_FORM = "us, ms, s, m or h, such as 200ms"
_DURATION_PATTERN = r"^([0-9]+(\\.[0-9]+)?(us|ms|s|m|h))+$"
# Those that CEL can count: `duration()` fails on what is longer than 292 years.
_COUNTABLE_PATTERN = r"^(0*[0-9]{1,6}(\\.[0-9]+)?(s|m|h)|0*[0-9]{1,12}(\\.[0-9]+)?(us|ms))+$"


def rule(expression: str, message: str = "", *, says: str = "", path: str = "") -> dict[str, str]:
    """One CEL rule: what must hold, and a fixed message or what it says (a CEL expression, to name the value)."""
    parts = {"rule": expression, "message": message, "messageExpression": says, "fieldPath": path}
    return {key: value for key, value in parts.items() if value}


def rules(*each: dict[str, str]) -> dict[str, Any]:
    """The rules as `json_schema_extra`."""
    return {VALIDATIONS: list(each)}


def immutable(what: str, instead: str) -> dict[str, str]:
    """A field that stays as it was created."""
    return rule("self == oldSelf", f"{what} cannot change; {instead}")


def _amount(least: str, most: str) -> AfterValidator:
    def check(text: str) -> str:
        size = parse_quantity(text)
        if size < parse_quantity(least):
            raise ValueError(f"{text} is too little; the least is {least}")
        if size > parse_quantity(most):
            raise ValueError(f"{text} is too much; the most is {most}")
        return text

    return AfterValidator(check)


def _bound(text: str) -> str:
    if parse_quantity(text) > parse_quantity(MOST_MEMORY):
        raise ValueError(f"{text} is too much; the most is {MOST_MEMORY}")
    return text


def _between(what: str, least: str, most: str) -> AfterValidator:
    def check(text: str) -> str:
        if not parse_duration(least) <= parse_duration(text) <= parse_duration(most):
            raise ValueError(f"{text} is out of range; {what} lies between {least} and {most}")
        return text

    return AfterValidator(check)


def are_durations(*values: str) -> str:
    """The CEL expression that all of these are durations: what `duration()` does not fail on."""
    return _all_match(_COUNTABLE_PATTERN, values)


def are_amounts(*values: str) -> str:
    """The CEL expression that all of these are amounts of memory: what `quantity()` does not fail on."""
    return _all_match(_QUANTITY_PATTERN, values)


def _all_match(pattern: str, values: tuple[str, ...]) -> str:
    return " && ".join(f"type({value}) == string && {value}.matches('{pattern}')" for value in values)


def _text(form: str, *each: dict[str, str]) -> dict[str, Any]:
    """The rules of a text that looks like a number, of which YAML makes one where there is nothing else in it.

    A field of the type string would refuse that without a word about what to write; so it is of no type, and the rules
    refuse it.
    """
    bare = rule(IS_TEXT, says=f"string(self) + ' is a number without a unit; write one with {form}'")
    return {INT_OR_STRING: True, FORM: f"A number with {form}.", **rules(bare, *each)}


def _duration_rules(what: str, least: str, most: str) -> dict[str, Any]:
    is_one = _all_match(_DURATION_PATTERN, ("self",))
    return _text(
        _DURATION_FORM,
        rule(
            f"!({IS_TEXT}) || {is_one}",
            says=f"'\"' + self + '\" is not a duration; write a number with {_DURATION_FORM}'",
        ),
        rule(
            f"!({is_one}) || ({are_durations('self')} && "
            f"duration(self) >= duration('{least}') && duration(self) <= duration('{most}'))",
            says=f"self + ' is out of range; {what} lies between {least} and {most}'",
        ),
    )


def _amount_rules(least: str, most: str) -> dict[str, Any]:
    return _text(
        _AMOUNT_FORM,
        rule(
            f"!({IS_TEXT}) || {are_amounts('self')}",
            says=f"'\"' + self + '\" is not an amount of memory; write a number with {_AMOUNT_FORM}'",
        ),
        rule(
            f"!({are_amounts('self')}) || quantity(self).compareTo(quantity('{least}')) >= 0",
            says=f"self + ' is too little; the least is {least}'",
        ),
        rule(
            f"!({are_amounts('self')}) || quantity(self).compareTo(quantity('{most}')) <= 0",
            says=f"self + ' is too much; the most is {most}'",
        ),
    )


def _schema(most: int, validations: dict[str, Any]) -> WithJsonSchema:
    """What the API server checks of a text of at most so many characters."""
    return WithJsonSchema({"maxLength": most} | validations)


_MEMORY_RULES = _amount_rules(LEAST_MEMORY, MOST_MEMORY)
_SWAP_RULES = _amount_rules(LEAST_MEMORY, MOST_SWAP)
_BOUND_RULES = _MEMORY_RULES | rules(*(one for place, one in enumerate(_MEMORY_RULES[VALIDATIONS]) if place != 2))

_DEADLINE = ("the deadline", LEAST_DEADLINE, MOST_DEADLINE)
_THRESHOLD = ("a threshold", LEAST_THRESHOLD, MOST_THRESHOLD)
_PAUSE = ("the cool-down", LEAST_PAUSE, MOST_PAUSE)

_IDENTITY = re.compile(r"x25519:[0-9a-f]{64}")
_NOBODY = f"x25519:{'0' * 64}"  # the one key that every other agrees with
_IDENTITY_FORM = "x25519: and 64 lowercase hexadecimal digits, as tidepool/identity in the guest shows it"
_IDENTITY_RULES = rules(
    rule(
        f"self.matches('^{_IDENTITY.pattern}$')",
        says=f"'\"' + self + '\" is not an identity; write {_IDENTITY_FORM}'",
    ),
    rule(f"self != '{_NOBODY}'", "is nobody's identity; leave it out while the guest has none"),
)


def is_identity(text: str) -> bool:
    """Whether this is a module's public key, as far as its form goes."""
    return bool(_IDENTITY.fullmatch(text)) and text != _NOBODY


def _identity(text: str) -> str:
    if not _IDENTITY.fullmatch(text):
        raise ValueError(f'"{text}" is not an identity; write {_IDENTITY_FORM}')
    if text == _NOBODY:
        raise ValueError("is nobody's identity; leave it out while the guest has none")
    return text


_ADDRESS_RULES = rules(rule("isIP(self)", says="'\"' + self + '\" is not an IP address'"))

_CIDR_FORM = "write an address and the length of its prefix, such as 10.20.0.0/16 or fd00::/64"
_CIDR_RULES = rules(
    rule("isCIDR(self)", says=f"'\"' + self + '\" is not a range of IP addresses; {_CIDR_FORM}'"),
    rule(
        "!isCIDR(self) || cidr(self) == cidr(self).masked()",
        says="self + ' has bits beyond its prefix; write the first address of the range'",
    ),
)


def _cidr(text: str) -> str:
    try:
        ip_network(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a range of IP addresses; {_CIDR_FORM}') from None
    return text


_DNS_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NETWORK_NAME = re.compile(rf"{_DNS_LABEL}/[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_NETWORK_NAME_FORM = "NAMESPACE/NAME of its NetworkAttachmentDefinition"
_NETWORK_NAME_RULES = rules(
    rule(
        f"self.matches('^{_NETWORK_NAME.pattern}$')",
        says=f"'\"' + self + '\" is not the name of a Multus network; write {_NETWORK_NAME_FORM}'",
    )
)


def is_network_name(text: str) -> bool:
    """Whether this can be the name of a Multus network, with its namespace."""
    return len(text) <= MOST_NETWORK_NAME and bool(_NETWORK_NAME.fullmatch(text))


def _network_name(text: str) -> str:
    if not is_network_name(text):
        raise ValueError(f'"{text}" is not the name of a Multus network; write {_NETWORK_NAME_FORM}')
    return text


# What goes to a shell of the guest: nothing that one would take for more than a path, and no way out of /dev.
_DEVICE = re.compile(r"/dev(/[A-Za-z0-9_][A-Za-z0-9_.:+-]*)+")
_OWN_DEVICES = "/dev/mapper/tidepool"
_DEVICE_FORM = f"below /dev, at most {MOST_DEVICE_PATH} letters, digits, _ . : + - and /, such as /dev/vdb"
_DEVICE_RULES = rules(
    rule(
        f"self.matches('^{_DEVICE.pattern}$')",
        says=f"'\"' + self + '\" is not the path of a device; write one {_DEVICE_FORM}'",
    ),
    rule(
        f"!self.startsWith('{_OWN_DEVICES}')",
        says="self + ' is what Tidepool itself makes; name the device that lies below it'",
    ),
)


def is_device(text: str) -> bool:
    """Whether this can be the path of a device in a guest, as far as its form goes."""
    return len(text) <= MOST_DEVICE_PATH and bool(_DEVICE.fullmatch(text)) and not text.startswith(_OWN_DEVICES)


def _device(text: str) -> str:
    if not is_device(text):
        raise ValueError(f'"{text}" is not the path of a device that a pool can have; write one {_DEVICE_FORM}')
    return text


Memory = Annotated[str, Field(max_length=20), _amount(LEAST_MEMORY, MOST_MEMORY), _schema(20, _MEMORY_RULES)]
SwapSize = Annotated[str, Field(max_length=20), _amount(LEAST_MEMORY, MOST_SWAP), _schema(20, _SWAP_RULES)]
DevicePath = Annotated[
    str, Field(min_length=1, max_length=MOST_DEVICE_PATH, json_schema_extra=_DEVICE_RULES), AfterValidator(_device)
]
Bound = Annotated[str, Field(max_length=20), AfterValidator(_bound), _schema(20, _BOUND_RULES)]
Deadline = Annotated[str, Field(max_length=16), _between(*_DEADLINE), _schema(16, _duration_rules(*_DEADLINE))]
Threshold = Annotated[str, Field(max_length=16), _between(*_THRESHOLD), _schema(16, _duration_rules(*_THRESHOLD))]
Pause = Annotated[str, Field(max_length=16), _between(*_PAUSE), _schema(16, _duration_rules(*_PAUSE))]
Port = Annotated[int, Field(ge=1, le=65535)]
Bytes = Annotated[int, Field(ge=0, le=MOST_BYTES, json_schema_extra={"format": "int64"})]
Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Percent = Annotated[int, Field(ge=0, le=100)]
Address = Annotated[str, Field(min_length=2, max_length=45, json_schema_extra=_ADDRESS_RULES)]
Cidr = Annotated[str, Field(min_length=4, max_length=43, json_schema_extra=_CIDR_RULES), AfterValidator(_cidr)]
NetworkName = Annotated[
    str,
    Field(min_length=3, max_length=MOST_NETWORK_NAME, json_schema_extra=_NETWORK_NAME_RULES),
    AfterValidator(_network_name),
]
Identity = Annotated[
    str, Field(min_length=1, max_length=71, json_schema_extra=_IDENTITY_RULES), AfterValidator(_identity)
]
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
ClassName = Annotated[str, Field(max_length=253)]  # empty for none
Ratio = Annotated[str, Field(pattern=r"^(0\.[0-9]{2}|1\.00)$", max_length=4)]


def format_ratio(hits: int, total: int) -> str | None:
    """A ratio with two digits, which is as much as anyone looks at; None of nothing."""
    return f"{hits / total:.2f}" if total else None


def total(sizes: Iterable[int]) -> int:
    """A sum of sizes that a field of bytes takes, whatever guests say theirs are."""
    return min(sum(sizes), MOST_BYTES)


def readable(size: int | None) -> str | None:
    """A number of bytes for a column that people read: whole MiB."""
    return None if size is None else format_quantity(round(size / (1 << 20)) << 20)


_SHARE = re.compile(r"(100|[1-9][0-9]?)%")
_SHARE_RULES = {
    INT_OR_STRING: True,
    **rules(
        rule(
            f"type(self) == int ? self > 0 : type(self) == string && self.matches('^{_SHARE.pattern}$')",
            says="string(self) + ' is neither a number of at least 1 nor a percentage from 1% to 100%'",
        )
    ),
}


def _part(value: int | str) -> int | str:
    if value <= 0 if isinstance(value, int) else not _SHARE.fullmatch(value):
        raise ValueError(f"{value} is neither a number of at least 1 nor a percentage from 1% to 100%")
    return value


NumberOrPercent = Annotated[int | str, AfterValidator(_part), WithJsonSchema(_SHARE_RULES)]


def part_of(part: int | str, whole: int) -> int:
    """A number as it is, or so many percent of the whole, rounded up."""
    return part if isinstance(part, int) else -(-whole * int(part.removesuffix("%")) // 100)


_OPERATORS_WITH_VALUES = ("In", "NotIn")

_VALUE_FORM = "up to 63 letters, digits, -, _ and ., with a letter or digit at each end"
_KEY_FORM = f"{_VALUE_FORM}, if need be behind a DNS name and a slash"
_IS_NO_KEY = "key, format.qualifiedName().validate(key).hasValue()"
_KEY_RULES = rules(
    rule(
        "!format.qualifiedName().validate(self).hasValue()",
        says=f"'\"' + self + '\" cannot be the key of a label; write {_KEY_FORM}'",
    )
)
_VALUE_RULES = rules(
    rule(
        "!format.labelValue().validate(self).hasValue()",
        says=f"'\"' + self + '\" cannot be the value of a label; write {_VALUE_FORM}'",
    )
)

LabelKey = Annotated[str, Field(min_length=1, max_length=317, json_schema_extra=_KEY_RULES)]
LabelValue = Annotated[str, Field(max_length=63, json_schema_extra=_VALUE_RULES)]


class Requirement(ApiModel):
    """One condition on the labels of a guest."""

    key: LabelKey
    """The label."""

    operator: Annotated[str, Field(json_schema_extra={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]})]
    """In or NotIn the values, or whether the label exists."""

    values: tuple[LabelValue, ...] = Field(default=(), max_length=16)
    """The values for In and NotIn."""

    model_config = {
        "json_schema_extra": rules(
            rule(
                "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 "
                ": !has(self.values) || self.values.size() == 0",
                says="'operator ' + self.operator + (self.operator in ['In', 'NotIn'] ? ' needs values' "
                ": ' takes no values') + ' (label ' + self.key + ')'",
            )
        )
    }

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether a guest with these labels meets the condition."""
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case _:
                return not present


class Selector(ApiModel):
    """Which guests: those whose labels meet all of these (a Kubernetes label selector)."""

    match_labels: dict[str, LabelValue] = Field(default_factory=dict, max_length=16)
    """Labels that a guest must have, with these values."""

    match_expressions: tuple[Requirement, ...] = Field(default=(), max_length=8)
    """Further conditions on labels."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-map-type": "atomic",
            **rules(
                rule(
                    "(has(self.matchLabels) && self.matchLabels.size() > 0) || "
                    "(has(self.matchExpressions) && self.matchExpressions.size() > 0)",
                    "is empty and would select every guest of the namespace; give at least one label",
                ),
                rule(
                    f"!has(self.matchLabels) || !self.matchLabels.exists({_IS_NO_KEY})",
                    says=f"'\"' + self.matchLabels.filter({_IS_NO_KEY})[0] + "
                    f"'\" cannot be the key of a label; write {_KEY_FORM}'",
                    path=".matchLabels",
                ),
            ),
        }
    }

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether a guest with these labels is selected."""
        wanted = all(labels.get(key) == value for key, value in self.match_labels.items())
        return wanted and all(one.matches(labels) for one in self.match_expressions)

    def __str__(self) -> str:
        """As `kubectl get -l` takes it."""
        exact = [f"{key}={value}" for key, value in sorted(self.match_labels.items())]
        return ",".join(exact + [_describe(one) for one in self.match_expressions])


def _describe(one: Requirement) -> str:
    if one.operator in _OPERATORS_WITH_VALUES:
        return f"{one.key} {one.operator.lower()} ({','.join(one.values)})"
    return one.key if one.operator == "Exists" else f"!{one.key}"
