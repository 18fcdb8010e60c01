"""What all models share: camelCase in JSON, snake_case here, unknown fields ignored, values never changed in place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, field_validator
from pydantic.alias_generators import to_camel

from tidepool_api import names
from tidepool_api.keys import ObjectKey

# Between these every moment has a date in each time zone, and there are minutes before and after it.
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def now() -> datetime:
    """The present, with the resolution that the API keeps."""
    return datetime.now(UTC).replace(microsecond=0)


def rfc3339(value: datetime) -> str:
    """A time as the API has it."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _in_utc(value: datetime) -> datetime:
    """The same moment in UTC; raises ValueError for one with which nobody can reckon, though the API takes it."""
    if not _FIRST <= value <= _LAST:
        raise ValueError(f"lies before {rfc3339(_FIRST)} or after {rfc3339(_LAST)}")
    return value.astimezone(UTC)


Time = Annotated[AwareDatetime, AfterValidator(_in_utc), PlainSerializer(rfc3339, return_type=str)]


class ApiModel(BaseModel):
    """A part of an API object."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without what is not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class OwnerReference(ApiModel):
    """A reference to the object that this one belongs to; the API server deletes it together with that one."""

    api_version: str
    kind: str = ""
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiModel):
    """The part of Kubernetes' metadata that Tidepool reads and writes."""

    name: str
    namespace: str = ""  # of what belongs to the cluster
    uid: str = ""
    resource_version: str | None = None
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None

    @field_validator("annotations")
    @classmethod
    def _of_tidepool(cls, annotations: dict[str, str]) -> dict[str, str]:
        """Others may note down what and as often as they like: it is neither kept nor a change."""
        return {key: text for key, text in annotations.items() if key.startswith(f"{names.GROUP}/")}


class ApiObject(ApiModel):
    """A whole object: metadata, and in each kind its own spec and status."""

    api_version: str = names.API_VERSION
    kind: str = ""
    metadata: ObjectMeta

    @classmethod
    def parse(cls, body: Any) -> Self:
        """An object as the API server sends it; raises pydantic's ValidationError naming the field that is wrong."""
        return cls.model_validate(body)

    @property
    def name(self) -> str:
        """The name within the namespace."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.metadata.namespace

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def terminating(self) -> bool:
        """Whether somebody has asked for its deletion."""
        return self.metadata.deletion_timestamp is not None
