use crate::sign::{S3Options, Signer, SignerSet, SigningRoot, UrlStream};
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
    let mut expected = Vec::new();
    stream.clone().append("a", &mut expected).unwrap();
    let mut twin = stream.clone();
    expected.clear();
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
