use proptest::prelude::*;

use crate::log_path::percent_decode;
use crate::sign::{
    AzureKey, AzureOptions, GcsKey, GcsOptions, S3Options, Signer, SignerSet, SigningRoot, UrlStream,
};
use crate::{Error, Result};

const NOW_MS: i64 = 1_709_251_198_000;

fn s3(bucket: &str) -> Signer {
    let endpoint = Some("http://store.test".to_owned());
    Signer::s3(S3Options { endpoint, path_style: true, ..S3Options::new(bucket, "r", "id", "secret") })
        .unwrap()
}

fn s3_stream() -> UrlStream {
    let root = SigningRoot::new("s3a://main/tables/t 1", s3("main")).unwrap();
    let others = vec![
        SigningRoot::new("s3://main/", s3("main")).unwrap(),
        SigningRoot::new("s3://other/clones/", s3("other")).unwrap(),
    ];
    SignerSet::new(root, others).stream(NOW_MS, 60).unwrap()
}

fn local_stream() -> UrlStream {
    let signer = Signer::local("http://gateway.test/files/t1", b"key").unwrap();
    let root = SigningRoot::new("file:///data/t=1", signer).unwrap();
    SignerSet::new(root, vec![]).stream(NOW_MS, 60).unwrap()
}

fn azure(account: &str, container: &str) -> Signer {
    Signer::azure(AzureOptions::new(account, container, AzureKey::Account("c2VjcmV0".to_owned()))).unwrap()
}

fn gcs(bucket: &str) -> Signer {
    let key = GcsKey::Hmac { access_id: "id".to_owned(), secret: "secret".to_owned() };
    Signer::gcs(GcsOptions::new(bucket, key)).unwrap()
}

/// A table on Azure whose log may refer to one more container, and to one of another account.
fn azure_stream() -> UrlStream {
    let root = SigningRoot::new("abfss://data@acct.dfs.core.windows.net/t 1", azure("acct", "data")).unwrap();
    let others = vec![
        SigningRoot::new("https://acct.blob.core.windows.net/base/clones/", azure("acct", "base")).unwrap(),
        SigningRoot::new("wasbs://data@other.blob.core.windows.net/x", azure("other", "data")).unwrap(),
    ];
    SignerSet::new(root, others).stream(NOW_MS, 60).unwrap()
}

/// The URL without its query.
fn url(stream: &mut UrlStream, path: &str) -> Result<String> {
    let mut out = Vec::new();
    stream.append(path, &mut out)?;
    stream.finish(&mut out);
    let url = String::from_utf8(out).unwrap();
    Ok(url.split_once('?').unwrap().0.to_owned())
}

#[test]
fn relative_paths_lie_under_the_root() {
    assert_eq!(
        url(&mut s3_stream(), "d=1/p%20q").unwrap(),
        "http://store.test/main/tables/t%201/d%3D1/p%20q"
    );
    assert_eq!(url(&mut local_stream(), "d=1/p%20q").unwrap(), "http://gateway.test/files/t1/d%3D1/p%20q");
}

#[test]
fn a_colon_in_a_relative_path_is_one_of_its_signs() {
    for (path, expected) in [
        ("t=10:30/p", "t%3D10%3A30/p"),
        ("a-b:c/d", "a-b%3Ac/d"),
        ("hdfs:p", "hdfs%3Ap"),
        ("file:p", "file%3Ap"),
    ] {
        let expected = format!("http://gateway.test/files/t1/{expected}");
        assert_eq!(url(&mut local_stream(), path).unwrap(), expected, "{path}");
    }
}

#[test]
fn absolute_paths_are_signed_by_the_longest_location_that_holds_them() {
    let mut stream = s3_stream();
    for (path, expected) in [
        ("s3://main/tables/t%201/p", "http://store.test/main/tables/t%201/p"),
        ("S3N://main/x/p%253D", "http://store.test/main/x/p%253D"),
        ("s3a://other/clones/p%25", "http://store.test/other/clones/p%25"),
    ] {
        assert_eq!(url(&mut stream, path).unwrap(), expected, "{path}");
    }
}

#[test]
fn all_spellings_of_a_file_are_one() {
    for path in [
        "/data/t=1/p",
        "file:////data/t=1/p",
        "file://LOCALHOST/data/t=1/p",
        "file:/data/t=1/p",
        "file:///data/t=1/p",
        "file://localhost/data/t%3D1/p",
        "FILE:/data/t=1/p",
    ] {
        assert_eq!(url(&mut local_stream(), path).unwrap(), "http://gateway.test/files/t1/p", "{path}");
    }
}

#[test]
fn a_path_that_begins_at_the_table_names_its_file() {
    for path in ["./p%201", "././p%201", "p%201"] {
        assert_eq!(
            url(&mut s3_stream(), path).unwrap(),
            "http://store.test/main/tables/t%201/p%201",
            "{path}"
        );
        assert_eq!(url(&mut local_stream(), path).unwrap(), "http://gateway.test/files/t1/p%201", "{path}");
    }
    assert!(matches!(url(&mut local_stream(), "./"), Err(Error::InvalidPath("names no file"))));
    assert!(matches!(url(&mut local_stream(), "./../p"), Err(Error::ForbiddenPath)));
}

#[test]
fn a_path_outside_of_all_locations_is_refused() {
    for path in [
        "..",
        "../p",
        "a/../../p",
        "a/%2e%2E/p",
        "a%2F..%2Fp",
        "/etc/passwd",
        "//data/t=1/p",
        "file:///etc/passwd",
        "file:/data/t=1/../p",
        "file:/data/t=1",
        "file:/data/t=1x/p",
        "file://host/data/t=1/p",
        "s3://main/p",
        "s3:/data/t=1/p",
        "hdfs:/data/t=1/p",
        "C:/data/t=1/p",
    ] {
        assert!(matches!(url(&mut local_stream(), path), Err(Error::ForbiddenPath)), "{path}");
    }
    for path in
        ["s3://other/p", "s3://other/clones/../p", "s3://other/clones/%2e./p", "s3://mainly/p", "/main/p"]
    {
        assert!(matches!(url(&mut s3_stream(), path), Err(Error::ForbiddenPath)), "{path}");
    }
}

#[test]
fn an_invalid_path_differs_from_a_forbidden_one() {
    for (path, reason) in [
        ("", "names no file"),
        ("a%00b", "holds NUL"),
        ("a\0b", "holds NUL"),
        ("a/%ff", "is not UTF-8"),
        ("%C3/%A9", "is not UTF-8"),
        ("file:/data/t=1/", "names no file"),
        ("file:/data/t=1/%00", "holds NUL"),
        ("file:/data/t=1/%ff", "is not UTF-8"),
    ] {
        let error = url(&mut local_stream(), path).unwrap_err();
        assert!(matches!(error, Error::InvalidPath(found) if found == reason), "{path}: {error:?}");
    }
    let error = local_stream().append_unencoded("a\0/deletion_vector.bin", &mut Vec::new());
    assert!(matches!(error, Err(Error::InvalidPath("holds NUL"))), "{error:?}");
    assert_eq!(url(&mut local_stream(), "%C3%A9é").unwrap(), "http://gateway.test/files/t1/%C3%A9%C3%A9");
}

#[test]
fn a_location_of_another_bucket_than_its_signers_is_refused() {
    for location in ["s3://other/x", "s3://mainly", "/main/x", "s3://main/../x", "main/x", ""] {
        assert!(SigningRoot::new(location, s3("main")).is_err(), "{location}");
    }
}

#[test]
fn another_location_whose_credentials_expired_fails_only_when_it_is_needed() {
    let expired = Signer::s3(S3Options {
        credentials_expire_ms: Some(NOW_MS),
        ..S3Options::new("other", "r", "id", "secret")
    })
    .unwrap();
    let root = SigningRoot::new("s3://main/", s3("main")).unwrap();
    let other = SigningRoot::new("s3://other/", expired).unwrap();
    let mut stream = SignerSet::new(root, vec![other.clone()]).stream(NOW_MS, 60).unwrap();
    assert!(url(&mut stream, "p").is_ok());
    assert!(matches!(url(&mut stream, "s3://other/p"), Err(Error::StorageDenied { .. })));
    assert!(matches!(SignerSet::new(other, vec![]).stream(NOW_MS, 60), Err(Error::StorageDenied { .. })));
}

#[test]
fn many_urls_are_signed_as_each_by_itself() {
    let path =
        |index: usize| format!("d{}/{index:05}", "x".repeat(index * 7 % 13 * (index / 100) + index % 2));
    for mut stream in [s3_stream(), local_stream()] {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for index in 0..600 {
            stream.append(&path(index), &mut out).unwrap();
            if index % 5 == 0 {
                let length = out.len();
                stream.append("taken/back", &mut out).unwrap();
                stream.truncate(length, &mut out);
            }
            if index == 300 {
                stream.finish(&mut out);
            }
            let mut twin = stream.clone();
            twin.append(&path(index), &mut expected).unwrap();
            twin.finish(&mut expected);
        }
        stream.finish(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(expected).unwrap());
    }
}

#[test]
fn a_url_taken_back_leaves_the_others_signed() {
    let mut stream = s3_stream();
    let (mut twin, mut expected) = (stream.clone(), Vec::new());
    twin.append("a", &mut expected).unwrap();
    twin.append("c", &mut expected).unwrap();
    twin.finish(&mut expected);

    let mut out = Vec::new();
    stream.append("a", &mut out).unwrap();
    let length = out.len();
    stream.append("b", &mut out).unwrap();
    assert!(stream.append("../x", &mut out).is_err());
    stream.truncate(length, &mut out);
    stream.append("c", &mut out).unwrap();
    stream.finish(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(expected).unwrap());
}

#[test]
fn all_spellings_of_a_blob_are_one_and_clones_lie_in_other_containers() {
    let mut stream = azure_stream();
    for (path, expected) in [
        ("p%20q", "https://acct.blob.core.windows.net/data/t%201/p%20q"),
        ("az://data/t%201/p", "https://acct.blob.core.windows.net/data/t%201/p"),
        (
            "abfs://data@ACCT.dfs.core.windows.net/t%201/p%2541",
            "https://acct.blob.core.windows.net/data/t%201/p%2541",
        ),
        ("abfss://base/clones/p", "https://acct.blob.core.windows.net/base/clones/p"),
        (
            "wasb://base@acct.blob.core.windows.net/clones/p",
            "https://acct.blob.core.windows.net/base/clones/p",
        ),
        ("https://other.dfs.core.windows.net/data/x/p", "https://other.blob.core.windows.net/data/x/p"),
    ] {
        assert_eq!(url(&mut stream, path).unwrap(), expected, "{path}");
    }
    for path in [
        "az://base/p",
        "az://data/x/p",
        "abfss://other/clones/p",
        "abfss://data@third.dfs.core.windows.net/t%201/p",
        "abfss://data@acct.dfs.core.chinacloudapi.cn/t%201/p",
        "abfss://data@acct.dfs.example.com/t%201/p",
        "az://data/t%201/../p",
        "s3://data/t%201/p",
    ] {
        assert!(matches!(url(&mut stream, path), Err(Error::ForbiddenPath)), "{path}");
    }
    for path in ["a%5C..%5C..%5Cp", "a\\p", "az://data/t%201/a%5cp", "a%0Ad", "a\n\nd"] {
        assert!(matches!(url(&mut stream, path), Err(Error::InvalidPath(_))), "{path}");
    }
}

#[test]
fn a_location_of_another_container_than_its_signers_is_refused() {
    for location in [
        "abfss://other@acct.dfs.core.windows.net/x",
        "abfss://data@other.dfs.core.windows.net/x",
        "az://other/x",
        "s3://data/x",
    ] {
        assert!(SigningRoot::new(location, azure("acct", "data")).is_err(), "{location}");
    }
    for location in ["gs://other/x", "gs://bu_ck/x", "gs://bu_cket.y/x", "s3://bu_cket/x"] {
        assert!(SigningRoot::new(location, gcs("bu_cket")).is_err(), "{location}");
    }
    for location in ["az://data/x", "abfss://data@acct.dfs.core.chinacloudapi.cn/x"] {
        assert!(SigningRoot::new(location, azure("acct", "data")).is_ok(), "{location}");
    }
}

/// Keys as Delta's writers make them and as nobody would. URLs of Azure have no backslash or
/// line break.
fn keys() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        "[a-z]{1,4}=[ -.0-\\[\\]-~]{0,12}",
        "(%[0-9A-F]{2}|[ %+é&;:@!'*?#~=,$()]|\u{1F600}){1,8}",
        "[^/\0\n\\\\]{1,12}",
    ];
    prop::collection::vec(segment.prop_filter("a dot segment", |text| text != "." && text != ".."), 1..4)
        .prop_map(|segments| segments.join("/"))
}

/// Writes a key as a log does, with all bytes or only the necessary ones escaped.
fn uri_of(key: &str, is_all: bool) -> String {
    key.bytes()
        .map(|byte| {
            let is_plain = byte.is_ascii_alphanumeric() || b"-_.=+!'()*@$&,;:~".contains(&byte);
            let is_kept = byte == b'/' || (is_plain && !is_all);
            if is_kept { char::from(byte).to_string() } else { format!("%{byte:02X}") }
        })
        .collect()
}

proptest! {
    #[test]
    fn any_key_is_one_object_in_its_location_in_a_log_and_in_its_url(
        prefix in keys(), key in keys(), is_all: bool,
    ) {
        let clouds = [
            (
                azure("acct", "data"),
                vec![
                    "abfss://data@acct.dfs.core.windows.net/", "wasb://data@acct.blob.core.windows.net/",
                    "https://acct.blob.core.windows.net/data/", "az://data/", "abfs://data/",
                ],
                "https://acct.blob.core.windows.net/data/",
            ),
            (gcs("bu_cket"), vec!["gs://bu_cket/"], "https://storage.googleapis.com/bu_cket/"),
            (s3("main"), vec!["s3://main/", "s3a://main/", "s3n://main/"], "http://store.test/main/"),
        ];
        for (signer, forms, base) in clouds {
            let whole = format!("{prefix}/{key}");
            let (signed, _) = signer.sign(&whole, NOW_MS, 60).unwrap();
            // Back from the URL to the key.
            let path = signed.split_once('?').unwrap().0.strip_prefix(base).unwrap();
            prop_assert_eq!(&*percent_decode(path).unwrap(), &*whole);
            for form in &forms {
                let root = SigningRoot::new(&format!("{form}{prefix}"), signer.clone()).unwrap();
                let mut stream = SignerSet::new(root, vec![]).stream(NOW_MS, 60).unwrap();
                let (mut below, mut unencoded) = (Vec::new(), Vec::new());
                // A path with a colon before its first slash might begin with a scheme.
                stream.append(&uri_of(&key, true), &mut below).unwrap();
                stream.finish(&mut below);
                prop_assert_eq!(String::from_utf8(below).unwrap(), &*signed);
                stream.append_unencoded(&key, &mut unencoded).unwrap();
                stream.finish(&mut unencoded);
                prop_assert_eq!(String::from_utf8(unencoded).unwrap(), &*signed);
                for written in &forms {
                    let (mut absolute, path) = (Vec::new(), uri_of(&whole, is_all));
                    stream.append(&format!("{written}{path}"), &mut absolute).unwrap();
                    stream.finish(&mut absolute);
                    prop_assert_eq!(String::from_utf8(absolute).unwrap(), &*signed, "{}", written);
                }
            }
        }
    }
}
