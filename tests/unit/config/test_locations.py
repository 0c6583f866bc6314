"""Locations of tables and of prefixes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Location

AZURE = Location("azure", "data", "t/p=a b", "acct", "core.windows.net")


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("s3://b", "s3a://b/t", True),
        ("s3n://b", "S3://b/t", True),
        ("s3://b/t", "s3://b/t", True),
        ("s3://b/t", "s3://b/table", False),
        ("s3://b", "s3://c", False),
        ("/a", "/a/b", True),
        ("/a", "file:///ab", False),
        ("/", "/a", True),
        ("gs://bucket", "gs://bucket/t", True),
        ("s3://bucket", "gs://bucket/t", False),
        (
            "https://acct.blob.core.windows.net/data",
            "abfss://data@acct.dfs.core.windows.net/t",
            True,
        ),
        ("abfss://data@acct.dfs.core.windows.net", "abfss://data@other.dfs.core.windows.net/t", False),
        ("abfss://data@acct.dfs.core.windows.net", "abfss://logs@acct.dfs.core.windows.net/t", False),
        ("abfss://data@acct.dfs.core.windows.net/t", "wasbs://data@acct.blob.core.windows.net/t2", False),
    ],
)
def test_a_prefix_holds_whole_segments(outer: str, inner: str, expected: bool) -> None:
    assert Location.parse(outer).contains(Location.parse(inner)) is expected


@pytest.mark.parametrize(
    ("text", "outer"),
    [
        ("/a/b", ["file:///a", "file:///"]),
        ("/", []),
        ("s3://b/a/t", ["s3://b/a", "s3://b/"]),
        ("s3://b", []),
    ],
)
def test_the_directories_around_a_location_end_at_its_bucket(text: str, outer: list[str]) -> None:
    assert [location.url for location in Location.parse(text).outer()] == outer


@pytest.mark.parametrize(
    "text",
    [
        "abfss://data@acct.dfs.core.windows.net/t/p=a b",
        "abfs://data@acct.dfs.core.windows.net/t/p=a b/",
        "wasbs://data@acct.blob.core.windows.net/t/p=a b",
        "WASB://data@ACCT.blob.core.windows.net//t/p=a b",
        "https://acct.blob.core.windows.net/data/t/p%3Da%20b",
        "https://acct.dfs.core.windows.net/data/t/p=a%20b/",
    ],
)
def test_all_forms_of_azure_are_one_location(text: str) -> None:
    assert Location.parse(text) == AZURE
    assert Location.parse(AZURE.url) == AZURE


def test_an_account_of_a_national_cloud_keeps_its_domain() -> None:
    location = Location.parse("abfss://data@acct.dfs.core.chinacloudapi.cn/t")
    assert location.url == "abfss://data@acct.dfs.core.chinacloudapi.cn/t"
    assert location != Location.parse("abfss://data@acct.dfs.core.windows.net/t")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://acct.blob.core.windows.net/data/t", "is not a location"),
        ("ftp://host/t", "'ftp://host/t' is not a location; accepted: s3://"),
        ("abfss://data@acct.example.com/t", "is no host of an account of Azure"),
        ("https://data.s3.amazonaws.com/t", "a bucket is s3://bucket/path or gs://bucket/path"),
        ("abfss://data@Long-Account.dfs.core.windows.net/t", "'long-account' is no account of Azure"),
        ("abfss://Data@acct.dfs.core.windows.net/t", "'Data' is no container of Azure"),
        ("abfss://a--b@acct.dfs.core.windows.net/t", "is no container of Azure"),
        ("abfss://@acct.dfs.core.windows.net/t", "is no container of Azure"),
        ("az://", "is no container of Azure"),
        ("gs://Bucket/t", "is not a valid Google bucket name"),
        ("gs:///t", "is not a valid Google bucket name"),
        ("s3:///t", "a location without a bucket"),
        ("s3://a bucket/t", "'a bucket' is not a valid bucket name"),
        ("s3://arn:aws:s3:eu-west-1:1:accesspoint/a/t", "by its alias"),
        ("s3://logs--use1-az4--x-s3/t", "S3 Express"),
        ("s3://point--use1-az4--xa-s3/t", "S3 Express"),
        ("gs://bucket/t/../u", "may not contain an empty part, '.' or '..'"),
        ("https://acct.blob.core.windows.net/data/%2e%2e/t", "may not contain an empty part, '.' or '..'"),
        ("https://acct.blob.core.windows.net/data/a%2F%2Fb", "may not contain an empty part"),
        ("https://acct.blob.core.windows.net/data/%FF", "is not UTF-8"),
        ("https://acct.blob.core.windows.net/data/a%0Ab", "control characters"),
        ("file:///a%FF", "is not UTF-8"),
        ("abfss://data@acct.dfs.core..windows.net/t", "is no host of an account of Azure"),
        ("abfss://data@acct.dfs.core.windows.net./t", "is no host of an account of Azure"),
        ("s3://b/a//b", "may not contain an empty part"),
        ("s3://b/./x", "may not contain an empty part"),
        ("gs://abc/a//b", "may not contain an empty part"),
        ("s3://../x", "is not a valid bucket name"),
        ("s3://a..b/x", "'a..b' is not a valid bucket name"),
        ("s3://b:80/x", "is not a valid bucket name"),
        ("gs://a..b/t", "is not a valid Google bucket name"),
    ],
)
def test_a_malformed_location_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as refused:
        Location.parse(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "https://acct.blob.core.windows.net/data/t?sv=1&sig=hidden",
        "https://me:hidden@acct.blob.core.windows.net/data/t",
        "http://acct.blob.core.windows.net/data/t?sig=hidden",
        "s3a://key:hidden@bucket/t",
        "s3://key:hidden/t",
        "s3://bucket?X-Amz-Signature=hidden",
        "gs://key:hidden@bucket/t",
        "abfss://data:hidden@acct.dfs.core.windows.net/t",
        "abfss://data@acct:hidden@acct.dfs.core.windows.net/t",
        "abfss://data@acct.dfs.core.windows.net:hidden/t",
        "abfss://data@acct.dfs.core.windows.net/t?sv=2022&sig=hidden",
        "wasbs://data@acct.blob.core.windows.net?sv=2022&sig=hidden",
        "az://data/t#hidden",
        "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=hidden",
    ],
)
def test_a_signature_or_a_password_in_a_location_is_in_no_message(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as refused:
        Location.parse(text)
    assert "hidden" not in str(refused.value)


@given(st.sampled_from(["s3", "azure", "gs"]), st.lists(st.text(min_size=1), max_size=4))
def test_any_key_is_the_same_in_a_location_and_its_url(kind, segments) -> None:
    account = ("acct", "core.windows.net") if kind == "azure" else ("", "")
    key = "/".join(re.sub(r"[/\x00-\x1f\x7f]", "", segment) for segment in segments)
    location = Location(kind, "bucket", key.strip("/"), *account)
    if not key or {"", ".", ".."}.isdisjoint(location.key.split("/")):
        assert Location.parse(location.text) == Location.parse(location.encoded) == location


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_directory_is_the_same_in_its_encoded_url(name: str) -> None:
    directory = Location("file", "", f"/{name.replace('/', '').strip('.')}d")
    assert Location.parse(directory.encoded) == Location.parse(directory.text) == directory


def test_a_name_with_a_question_mark_in_azure_is_percent_encoded() -> None:
    location = Location.parse("https://acct.blob.core.windows.net/data/a%3Fb%23")
    assert location.key == "a?b#"
    assert location.text == "https://acct.blob.core.windows.net/data/a%3Fb%23"


@pytest.mark.parametrize("text", ["//data/t", "///data//t/", "file:////data/t"])
def test_a_directory_has_one_form_whatever_slashes_it_begins_with(text: str) -> None:
    assert Location.parse(text) == Location.parse("/data/t")
