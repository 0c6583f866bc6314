"""Writes Delta logs without data files, of every shape that Delta allows, for properties to draw from.

`Log` writes one step at a time and keeps what it believes to be live; `steps` draws what to do next.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st
from support.reference import Action, deletion_vector_id, key

Form = Literal[
    "single", "multi-part", "v2-parquet", "v2-json", "v2-sidecars", "v2-json-sidecars", "v2-classic"
]
Statistics = Literal["text", "typed", "both"]
FORMS: tuple[Form, ...] = (
    "single",
    "multi-part",
    "v2-parquet",
    "v2-json",
    "v2-sidecars",
    "v2-json-sidecars",
    "v2-classic",
)

STRINGS = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
FILE = [("path", pa.string()), ("partitionValues", STRINGS), ("size", pa.int64())]
COLUMNS = {
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", STRINGS)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", STRINGS),
            ("createdTime", pa.int64()),
        ]
    ),
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "add": pa.struct(
        [
            *FILE,
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
            ("tags", STRINGS),
            ("deletionVector", VECTOR),
            ("baseRowId", pa.int64()),
            ("defaultRowCommitVersion", pa.int64()),
        ]
    ),
    "remove": pa.struct(
        [
            *FILE,
            ("deletionTimestamp", pa.int64()),
            ("dataChange", pa.bool_()),
            ("extendedFileMetadata", pa.bool_()),
            ("stats", pa.string()),
            ("tags", STRINGS),
            ("deletionVector", VECTOR),
        ]
    ),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", STRINGS)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", STRINGS),
        ]
    ),
}

SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in {"id": "long", "text": "string", "part": "string"}.items()
        ],
    }
)
READER_FEATURES = ["deletionVectors", "v2Checkpoint"]
WRITER_FEATURES = [*READER_FEATURES, "changeDataFeed"]
START_MS = 1_700_000_000_000


class Growing:
    """A log that grows: `live` and `removed` are what its writer believes."""

    root: Path
    next_version: int
    live: dict[tuple[str, str], Action]
    removed: dict[tuple[str, str], Action]
    with_sidecars: ClassVar[tuple[Form, ...]] = ("v2-sidecars", "v2-json-sidecars")
    row_group_rows: ClassVar[int] = 3

    @property
    def log(self) -> Path:
        """The directory of log files."""
        return self.root / "_delta_log"

    @property
    def head(self) -> list[Action]:
        """The actions of a checkpoint that are no files."""
        raise NotImplementedError

    def take(self, action: Action) -> None:
        """Keeps what an add or remove means for later versions."""
        if "add" in action:
            self.live[key(action["add"])] = action["add"]
            self.removed.pop(key(action["add"]), None)
        elif "remove" in action:
            self.live.pop(key(action["remove"]), None)
            self.removed[key(action["remove"])] = action["remove"]

    def checkpoint(self, form: Form, *, statistics: Statistics = "text", hint: str = "right") -> None:
        """Writes a checkpoint of the latest version. `hint` selects the content of `_last_checkpoint`."""
        version = self.next_version - 1
        stem = f"{version:020}.checkpoint"
        head = self.head
        files = [{"add": add} for add in self.live.values()]
        files += [{"remove": remove} for remove in self.removed.values()]
        if form == "single":
            self.write(f"{stem}.parquet", head + files, statistics)
        elif form == "multi-part":
            parts = [head + files[::2], files[1::2]]
            for number, rows in enumerate(parts, start=1):
                self.write(f"{stem}.{number:010}.{len(parts):010}.parquet", rows, statistics)
        else:
            head.insert(0, {"checkpointMetadata": {"version": version}})
            name = stem if form == "v2-classic" else f"{stem}.{self.uuid_of(form)}"
            if form in self.with_sidecars:
                files = [self.sidecar(files[start::2], f"{form} {start}", statistics) for start in (0, 1)]
            self.write(f"{name}.{'json' if 'json' in form else 'parquet'}", head + files, statistics)
        self.hint(hint, version, parts=2 if form == "multi-part" else None)

    def sidecar(self, rows: list[Action], named: str, statistics: Statistics) -> Action:
        """Writes a sidecar. Returns the action that names it."""
        name = f"{self.uuid_of(named)}.parquet"
        self.write(f"_sidecars/{name}", rows, statistics)
        size = (self.log / "_sidecars" / name).stat().st_size
        return {"sidecar": {"path": name, "sizeInBytes": size, "modificationTime": START_MS}}

    def write(self, name: str, rows: list[Action], statistics: Statistics = "text") -> None:
        """Writes one file of a checkpoint, JSON or parquet by its name."""
        path = self.log / name
        path.parent.mkdir(exist_ok=True)
        if name.endswith(".json"):
            write_lines(path, rows)
            return
        names = [name for name in COLUMNS if name in {"add", "remove"} or any(name in row for row in rows)]
        types = {name: COLUMNS[name] for name in names}
        plain = [{name: for_parquet(row.get(name)) for name in names} for row in rows]
        if statistics != "text":
            types["add"] = self.add_type(statistics)
            for row in plain:
                if row["add"] is not None:
                    row["add"] |= self.typed(row["add"])
        content = pa.Table.from_pylist(plain, schema=pa.schema(list(types.items())))
        pyarrow.parquet.write_table(content, path, row_group_size=self.row_group_rows)

    def uuid_of(self, named: str) -> uuid.UUID:
        """The UUID in the name of a checkpoint or sidecar."""
        return uuid.uuid4()

    def add_type(self, statistics: Statistics) -> pa.StructType:
        """The type of adds with typed statistics."""
        raise NotImplementedError

    def typed(self, add: Action) -> Action:
        """The typed statistics of an add."""
        raise NotImplementedError

    def hint(self, hint: str, version: int, *, parts: int | None = None) -> None:
        """Writes `_last_checkpoint`: right, pointing to a missing checkpoint, broken, or as it was."""
        path = self.log / "_last_checkpoint"
        said = {"size": len(self.live) + len(self.removed) + 2, **({"parts": parts} if parts else {})}
        match hint:
            case "right":
                path.write_text(json.dumps({"version": version, **said}))
            case "missing":
                path.write_text(json.dumps({"version": version + 100, **said}))
            case "broken":
                path.write_text('{"version": 1')
            case "absent":
                path.unlink(missing_ok=True)
            case "stale":
                pass
            case _:
                raise ValueError(hint)


@dataclass
class Log(Growing):
    """A log whose steps are drawn."""

    root: Path
    partitioned: bool = True
    next_version: int = 0
    live: dict[tuple[str, str], Action] = field(default_factory=dict)
    removed: dict[tuple[str, str], Action] = field(default_factory=dict)
    at_version: dict[int, dict[tuple[str, str], Action]] = field(default_factory=dict)
    checkpointed: int = -1

    def __post_init__(self) -> None:
        """Writes version 0."""
        self.log.mkdir(parents=True)
        self.commit([])

    @property
    def protocol(self) -> Action:
        """Allows all that is drawn here."""
        return {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": READER_FEATURES,
            "writerFeatures": WRITER_FEATURES,
        }

    @property
    def metadata(self) -> Action:
        """One schema for all versions."""
        return {
            "id": "c0ffee00-0000-4000-8000-000000000000",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA_STRING,
            "partitionColumns": ["part"] if self.partitioned else [],
            "configuration": {"delta.checkpointPolicy": "v2", "delta.enableChangeDataFeed": "true"},
            "createdTime": START_MS,
        }

    @property
    def head(self) -> list[Action]:
        """Protocol and metadata with a transaction."""
        transaction = {"txn": {"appId": "app", "version": 1, "lastUpdated": START_MS}}
        return [{"protocol": self.protocol}, {"metaData": self.metadata}, transaction]

    def commit(self, actions: list[Action]) -> None:
        """Writes the next version with these adds and removes, in their order."""
        version = self.next_version
        first = [{"protocol": self.protocol}, {"metaData": self.metadata}] if version == 0 else []
        info = {"commitInfo": {"timestamp": START_MS + version * 1000, "operation": "WRITE"}}
        path = self.log / f"{version:020}.json"
        path.write_text("".join(json.dumps(action) + "\n" for action in [info, *first, *actions]))
        os.utime(path, (START_MS / 1000 + version, START_MS / 1000 + version))
        for action in actions:
            self.take(action)
        self.at_version[version] = dict(self.live)
        self.next_version += 1

    def hint(self, hint: str, version: int, *, parts: int | None = None) -> None:
        """Leaves out the number of parts, so that readers look for the checkpoint's form."""
        super().hint(hint, version)

    def half_a_checkpoint(self) -> None:
        """A multi-part checkpoint of which a part is missing: readers look past it."""
        name = f"{self.next_version - 1:020}.checkpoint.{1:010}.{2:010}.parquet"
        self.write(name, [{"protocol": self.protocol}, {"metaData": self.metadata}])

    def clean_up(self, checkpoint_version: int) -> None:
        """Deletes the commits that a checkpoint has made dispensable."""
        for version in range(checkpoint_version + 1):
            (self.log / f"{version:020}.json").unlink(missing_ok=True)


def write_lines(path: Path, actions: Iterable[Action]) -> None:
    """A file of one action per line."""
    path.write_text(
        "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions), encoding="utf-8"
    )


def for_parquet(value: Mapping[str, Any] | None) -> Any:
    """Maps as pyarrow takes them."""
    if value is None:
        return None
    maps = {"partitionValues", "configuration", "tags", "options"}
    return {
        name: list(inner.items())
        if name in maps
        else for_parquet(inner)
        if isinstance(inner, dict)
        else inner
        for name, inner in value.items()
    }


# What properties draw

# What old writers leave out of a remove.
DISPENSABLE = {"partitionValues", "size", "extendedFileMetadata", "deletionTimestamp"}

PATHS = ["a.parquet", "b%20c.parquet", "d%2Fe.parquet", "part=x%25y/f.parquet", "g+h.parquet", "ü.parquet"]
PART_VALUES = [None, "", "x", "a b", "100%", "k=v", "ü\u2028", '"\\']
VECTORS: list[Action | None] = [
    None,
    None,
    {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 2,
    },
    {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 60,
        "sizeInBytes": 40,
        "cardinality": 3,
    },
    {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    },
]

TAGS: list[Action | None] = [None, None, {}, {"INSERTION_TIME": "1", 'k\u2028"': "v\\\r", "none": None}]

adds = st.builds(
    lambda path, vector, size, part, stats, tags: {
        "path": path,
        "vector": vector,
        "size": size,
        "part": part,
        "stats": stats,
        "tags": tags,
    },
    st.sampled_from(PATHS),
    st.sampled_from(VECTORS),
    st.integers(0, 10_000),
    st.sampled_from(PART_VALUES),
    st.sampled_from([None, '{"numRecords":3}', '{"numRecords":7,"minValues":{"id":1,"text":"\\u0085"}}']),
    st.sampled_from(TAGS),
)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("commit"),
            st.lists(adds, max_size=4),
            st.lists(st.sampled_from(PATHS), max_size=3),
            st.sampled_from(["files", "bare files", "change files", "no change"]),
        ),
        st.tuples(
            st.just("checkpoint"),
            st.sampled_from(FORMS),
            st.sampled_from(["right", "missing", "broken", "absent", "stale"]),
        ),
        st.tuples(st.just("half a checkpoint")),
        st.tuples(st.just("clean up")),
    ),
    max_size=12,
)


def written(root: Path, drawn: list[tuple], *, partitioned: bool) -> Log:
    """A log of what was drawn."""
    log = Log(root, partitioned)
    for step in drawn:
        carry_out(log, step)
    return log


def carry_out(log: Log, step: tuple) -> None:
    """One step, where the log is ready for it."""
    latest = log.next_version - 1
    match step:
        case ("commit", added, removed, changing):
            log.commit(file_actions(log, added, removed, changing))
        case ("checkpoint", kind, hint) if log.checkpointed < latest:
            log.checkpoint(kind, hint=hint)
            log.checkpointed = latest
        case ("half a checkpoint",) if log.checkpointed < latest:
            log.half_a_checkpoint()
        case ("clean up",) if log.checkpointed >= 0:
            log.clean_up(log.checkpointed)
        case ("checkpoint", _, _) | ("half a checkpoint",) | ("clean up",):
            pass
        case _:
            raise ValueError(f"no such step: {step}")


def file_actions(log: Log, added: list[dict], removed: list[str], changing: str) -> list[Action]:
    """Removes of live files with these paths, then adds; a path is added once and never beside itself.

    `changing` says what readers of changes find: the files themselves, removed ones by their path alone,
    change files, or nothing.
    """
    live_by_path = {path: (path, vector) for path, vector in log.live}
    fresh = {draw["path"]: draw for draw in added}
    for key_of_file in {*live_by_path.values()}:
        draw = fresh.get(key_of_file[0])
        # Another add of a live file, without its removal, is of the same content.
        if draw is not None and deletion_vector_id(draw["vector"]) == key_of_file[1]:
            fresh[draw["path"]] = draw | {"size": log.live[key_of_file]["size"]}
    data_change = changing != "no change"
    actions: list[Action] = []
    for path in sorted({*removed, *fresh} & set(live_by_path)):
        same = path in fresh and deletion_vector_id(fresh[path]["vector"]) == live_by_path[path][1]
        if not same:
            old = log.live[live_by_path[path]]
            removed = removal(log, old, data_change)
            if changing == "bare files":
                removed = {name: removed[name] for name in removed if name not in DISPENSABLE}
            actions.append({"remove": removed})
    actions += [{"add": addition(log, draw, data_change)} for draw in fresh.values()]
    if changing == "change files" and actions:
        path = f"_change_data/cdc-{log.next_version}%20x.parquet"
        cdc = {"path": path, "partitionValues": {}, "size": 77, "dataChange": False}
        actions.append({"cdc": cdc | {"tags": {"of": "changes"}}})
    return actions


def removal(log: Log, old: Action, data_change: bool) -> Action:
    """The end of a live file."""
    vector = {"deletionVector": old["deletionVector"]} if "deletionVector" in old else {}
    kept = {name: old[name] for name in ("path", "partitionValues", "size")}
    times = {"deletionTimestamp": START_MS + log.next_version, "dataChange": data_change}
    optional = {name: old[name] for name in ("stats", "tags") if name in old}
    return {**kept, **vector, **optional, **times, "extendedFileMetadata": True}


def addition(log: Log, draw: dict, data_change: bool) -> Action:
    """A new file, or one with another vector."""
    add: Action = {
        "path": draw["path"],
        "partitionValues": {"part": draw["part"]} if log.partitioned else {},
        "size": draw["size"],
        "modificationTime": START_MS + log.next_version,
        "dataChange": data_change,
    }
    add |= {"stats": draw["stats"]} if draw["stats"] else {}
    add |= {"tags": draw["tags"]} if draw["tags"] is not None else {}
    return add | ({"deletionVector": draw["vector"]} if draw["vector"] else {})
