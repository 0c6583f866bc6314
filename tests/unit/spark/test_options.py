"""Options of the source: accepted values, and the messages for others."""

from pathlib import Path

import pytest

from gateway.client.profile import Profile, ProfileError
from gateway.client.table_name import TableName
from gateway.spark.read.options import ReadOptions


class TestOptions:
    PROFILE = '{"endpoint": "http://h/p/", "bearerToken": "secret"}'

    def test_names_are_taken_in_any_case(self) -> None:
        options = ReadOptions.parse(
            {"PROFILE": self.PROFILE, "path": "sh.are.schema.table", "VERSIONASOF": "3", "columns": "a, b"}
        )
        assert options.table == TableName("sh.are", "schema", "table")
        assert (options.version_as_of, options.columns) == (3, ("a", "b"))

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("a, b c ,d", ("a", "b c", "d")),
            ("`a,b`, c", ("a,b", "c")),
            ("a, `b``,` ", ("a", "b`,")),
        ],
    )
    def test_a_column_with_a_comma_is_named_in_backticks(self, text: str, names: tuple[str, ...]) -> None:
        given = {"profile": self.PROFILE, "path": "a.b.c", "columns": text}
        assert ReadOptions.parse(given).columns == names

    def test_the_hint_for_an_option_of_delta_is_the_one_that_does_the_same(self) -> None:
        with pytest.raises(ValueError, match="is skipChangeCommits meant"):
            ReadOptions.parse({"profile": self.PROFILE, "path": "a.b.c", "ignoreChanges": "true"})

    def test_the_token_is_not_shown(self) -> None:
        options = ReadOptions.parse({"profile": self.PROFILE, "path": "a.b.c"})
        assert "secret" not in repr(options)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"path": "a.b.c"},
            {"profile": PROFILE, "path": "a.b"},
            {"profile": PROFILE, "path": "a.b.c", "versionAsOf": "new"},
            {
                "profile": PROFILE,
                "path": "a.b.c",
                "versionAsOf": "1",
                "timestampAsOf": "2024-01-01T00:00:00Z",
            },
            {"profile": PROFILE, "path": "a.b.c", "readChangeFeed": "yes"},
            {"profile": PROFILE, "path": "a.b.c", "columns": "id,`"},
            {"profile": PROFILE, "path": "a.b.c", "columns": "id,,n"},
            {"profile": PROFILE, "path": "a.b.c", "versionAsof1": "1"},
            {"profile": PROFILE, "path": "a.b.c", "maxFilesPerPage": "0"},
            {"profile": PROFILE, "path": "a.b.c", "startingVersion": "3", "endingVersion": "2"},
            {"profile": PROFILE, "path": "a.b.c", "startingVersion": "3", "startingTimestamp": "2024-01-01"},
            {"profile": PROFILE, "path": "a.b.c", "readChangeFeed": "true", "versionAsOf": "2"},
            {"profile": PROFILE, "path": "a.b.c", "readChangeFeed": "true", "predicateHints": "a = 1"},
            {"profile": PROFILE, "path": "other#a.b.c"},
            {"profile": PROFILE, "path": "a.b.c", "predicateHints": "a = 1", "limitHint": "1"},
        ],
    )
    def test_wrong_options_say_so(self, wrong: dict[str, str]) -> None:
        with pytest.raises(ValueError, match=r".+"):
            ReadOptions.parse(wrong)

    @pytest.mark.parametrize(
        ("given", "batch", "stream"),
        [
            ({}, None, None),
            ({"startingVersion": "1"}, "startingVersion needs readChangeFeed", None),
            ({"endingVersion": "1"}, "endingVersion needs readChangeFeed", None),
            ({"readChangeFeed": "true"}, "readChangeFeed needs startingVersion", None),
            ({"maxFilesPerTrigger": "1"}, "maxFilesPerTrigger is of streams", None),
            ({"ignoreDeletes": "true"}, "ignoreDeletes is of streams", None),
            ({"versionAsOf": "1"}, None, "versionAsOf is of batch reads"),
            ({"predicateHints": "a = 1"}, None, "predicateHints is of batch reads"),
            ({"expectedVersion": "1"}, None, "expectedVersion is of batch reads"),
            (
                {"endingTimestamp": "2024-01-01T00:00:00Z"},
                "needs readChangeFeed",
                "endingTimestamp is of batch",
            ),
        ],
    )
    def test_options_without_effect_say_so(
        self, given: dict[str, str], batch: str | None, stream: str | None
    ) -> None:
        options = ReadOptions.parse({"profile": self.PROFILE, "path": "a.b.c", **given})
        for check, said in ((options.check_batch, batch), (options.check_stream, stream)):
            if said is None:
                check()
                continue
            with pytest.raises(ValueError, match=said):
                check()

    @pytest.mark.parametrize(
        ("text", "zone", "utc"),
        [
            ("2024-01-31T12:30:00Z", None, "2024-01-31T12:30:00Z"),
            ("2024-01-31T12:30:00.5+05:30", "UTC", "2024-01-31T07:00:00.500000Z"),
            ("2024-01-31 12:30:00 Europe/Rome", None, "2024-01-31T11:30:00Z"),
            ("2024-01-31 12:30:00", "Asia/Kolkata", "2024-01-31T07:00:00Z"),
            ("2024-1-3 1:02", "America/New_York", "2024-01-03T06:02:00Z"),
            ("2024-01-31", "+05:30", "2024-01-30T18:30:00Z"),
            ("2024-02", "UTC", "2024-02-01T00:00:00Z"),
            ("2024", "Asia/Kolkata", "2023-12-31T18:30:00Z"),
            # Java's choices in the hour that is left out, and in the one that comes twice.
            ("2024-03-31 02:30:00", "Europe/Rome", "2024-03-31T01:30:00Z"),
            ("2024-10-27 02:30:00", "Europe/Rome", "2024-10-27T00:30:00Z"),
        ],
    )
    def test_a_time_without_a_zone_is_in_the_zone_of_the_option(
        self, text: str, zone: str | None, utc: str
    ) -> None:
        given = {"profile": self.PROFILE, "path": "a.b.c", "timestampAsOf": text}
        options = ReadOptions.parse(given | ({} if zone is None else {"timeZone": zone}))
        assert options.timestamp_as_of == utc

    @pytest.mark.parametrize(
        ("text", "zone", "said"),
        [
            ("2024-01-31 12:30:00", None, "has no time zone"),
            ("2024-01-31", None, "has no time zone"),
            ("yesterday", "UTC", "is no time"),
            ("12:30", "UTC", "is no time"),
            ("2024-02-30", "UTC", "is no time"),
            ("0001-01-01", "Europe/Rome", "is no time"),
            ("2024-01-31", "Atlantis/City", "Atlantis/City is unknown"),
        ],
    )
    def test_a_time_that_could_be_another_one_is_refused(
        self, text: str, zone: str | None, said: str
    ) -> None:
        given = {"profile": self.PROFILE, "path": "a.b.c", "startingTimestamp": text}
        with pytest.raises(ValueError, match=said):
            ReadOptions.parse(given | ({} if zone is None else {"timeZone": zone}))

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    def test_a_profile_is_read_in_the_encodings_of_editors(self, encoding: str, tmp_path: Path) -> None:
        (tmp_path / "a.share").write_text(self.PROFILE, encoding=encoding)
        assert Profile.load(str(tmp_path / "a.share")) == Profile.load(self.PROFILE)

    def test_a_file_without_a_text_is_no_profile(self, tmp_path: Path) -> None:
        (tmp_path / "a.share").write_bytes(b"\x89PNG\xff")
        with pytest.raises(ProfileError, match="is not JSON"):
            Profile.load(str(tmp_path / "a.share"))

    def test_a_profile_without_a_token_is_named(self) -> None:
        with pytest.raises(ProfileError, match="bearerToken"):
            Profile.load('{"endpoint": "x"}')
