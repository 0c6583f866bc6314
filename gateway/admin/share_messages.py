"""Requests and answers of the admin API about shares, with the field names of Databricks.

A data object is a table, a schema or a volume. `name` is its location, and `shared_as` its name in the share.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.admin.messages import MAX_LIST_LENGTH, Name

ObjectType = Literal["TABLE", "SCHEMA", "VOLUME"]
History = Literal["ENABLED", "DISABLED"]
Version = Annotated[int, Meta(ge=0)]
Location = Annotated[str, Meta(max_length=4096, description="as `location` of the configuration")]
SharedAs = Annotated[
    str,
    Meta(
        min_length=1, max_length=511, description="`schema.table`, `schema.volume`, or the name of a schema"
    ),
]
Properties = Annotated[dict[str, str], Meta(description="these replace all properties")]


class DiscoveredTables(Struct, frozen=True, forbid_unknown_fields=True):
    """Tables that are discovered, with the keys of `tables` of the configuration."""

    discover: Annotated[
        str, Meta(min_length=1, max_length=4096, description="location with placeholders for directories")
    ]
    every_seconds: float | UnsetType = UNSET
    keep_seconds: float | UnsetType = UNSET
    max_depth: int | UnsetType = UNSET
    max_tables: int | UnsetType = UNSET
    max_calls: int | UnsetType = UNSET
    history_data_sharing_status: History | UnsetType = UNSET
    replace_dots: bool | UnsetType = UNSET


class DataObject(Struct, frozen=True, forbid_unknown_fields=True):
    """A table, a schema or a volume of a share."""

    shared_as: SharedAs
    name: Location | UnsetType = UNSET
    data_object_type: ObjectType = "TABLE"
    comment: str | UnsetType = UNSET
    history_data_sharing_status: History | UnsetType = UNSET
    start_version: Version | UnsetType = UNSET
    access_modes: tuple[Literal["url", "dir"], ...] | UnsetType = UNSET
    auxiliary_locations: tuple[Location, ...] | UnsetType = UNSET
    id: str | UnsetType = UNSET
    tables: (
        Annotated[DiscoveredTables, Meta(description="of a schema: its tables are discovered")] | UnsetType
    ) = UNSET


class DataObjectUpdate(Struct, frozen=True, forbid_unknown_fields=True):
    """One change of a share's data objects.

    UPDATE changes the given fields of a table or volume, or replaces the discovery of a schema.
    """

    action: Literal["ADD", "REMOVE", "UPDATE"]
    data_object: DataObject


class NewShare(Struct, frozen=True, forbid_unknown_fields=True):
    """A share without data objects."""

    name: Name
    comment: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    properties: Properties | UnsetType = UNSET
    tables: DiscoveredTables | UnsetType = UNSET


class ShareUpdate(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a share, which are made together or not at all. An empty text removes a description."""

    comment: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    properties: Properties | UnsetType = UNSET
    tables: (
        Annotated[DiscoveredTables | None, Meta(description="tables that are discovered; null for none")]
        | UnsetType
    ) = UNSET
    updates: Annotated[tuple[DataObjectUpdate, ...], Meta(max_length=MAX_LIST_LENGTH)] = ()


class ShareInfo(Struct, frozen=True):
    """A share. Those of the configuration are changed in its file."""

    name: str
    source: Literal["configuration", "database"]
    comment: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET
    tables: DiscoveredTables | UnsetType = UNSET
    objects: tuple[DataObject, ...] | UnsetType = UNSET


class LeftOutObject(Struct, frozen=True):
    """What is stored and not shared, because it is no longer valid, and why."""

    name: str
    reason: str


class Shares(Struct, frozen=True):
    """All shares, without their data objects."""

    shares: tuple[ShareInfo, ...]
    left_out: tuple[LeftOutObject, ...] = ()


class PrivilegeAssignment(Struct, frozen=True):
    """A recipient that may read a share or something in it, and the grants by which it may."""

    principal: str
    privileges: tuple[Literal["SELECT"], ...] = ("SELECT",)
    grants: tuple[str, ...] = ()
    source: Literal["configuration", "database"] = "database"


class Permissions(Struct, frozen=True):
    """All recipients that may read a share or something in it, those of the configuration file, too."""

    privilege_assignments: tuple[PrivilegeAssignment, ...]


class PermissionChange(Struct, frozen=True, forbid_unknown_fields=True):
    """A grant that is added or removed."""

    principal: Name
    add: tuple[Literal["SELECT"], ...] = ()
    remove: tuple[Literal["SELECT"], ...] = ()


class PermissionsUpdate(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of grants, all of them or none."""

    changes: Annotated[tuple[PermissionChange, ...], Meta(max_length=MAX_LIST_LENGTH)]
    omit_permissions_list: bool = False
