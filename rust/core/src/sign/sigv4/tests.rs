use proptest::prelude::*;
use sha2::Digest;

use super::super::v4::utc_basic;
use super::*;
use crate::Error;
use crate::hashing::slow_hex as hex;
use crate::log_path::percent_decode;
use crate::sign::{Signer, SignerSet, SigningRoot};

/// 2024-02-29T23:59:58Z
const NOW_MS: i64 = 1_709_251_198_000;

fn options() -> S3Options {
    S3Options::new("b-1", "eu-central-1", "AK/ID+1", "se/cret+key=")
}

fn sign(options: S3Options, key: &str) -> String {
    Signer::s3(options).unwrap().sign(key, NOW_MS, 3600).unwrap().0
}

/// From "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)".
#[test]
fn the_vector_that_aws_publishes() {
    let options = S3Options {
        bucket: "examplebucket".to_owned(),
        region: "us-east-1".to_owned(),
        endpoint: Some("https://s3.amazonaws.com".to_owned()),
        access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        ..options()
    };
    for portable in [false, true] {
        let signer = Signer::s3(S3Options { portable, ..options.clone() }).unwrap();
        let (url, expires_ms) = signer.sign("test.txt", 1_369_353_600_000, 86_400).unwrap();
        assert_eq!(
            url,
            "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
        assert_eq!(expires_ms, 1_369_440_000_000);
    }
}

// The next vectors were made by boto3 at the same clock (`generate_presigned_url`, signature_version "s3v4").

const QUERY: &str = "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2FID%2B1%2F20240229%2Feu-central-1%2Fs3%2F\
                     aws4_request&X-Amz-Date=20240229T235958Z&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Signature=";

#[test]
fn an_odd_key_is_signed_as_boto3_signs_it() {
    assert_eq!(
        sign(options(), "t/a b/é=1%20+~._-/x%.parquet"),
        format!(
            "https://b-1.s3.eu-central-1.amazonaws.com/t/a%20b/%C3%A9%3D1%2520%2B~._-/x%25.parquet{QUERY}\
             b431fea159eed58c333aa75038fac61a0542f545125e8507be0ff73d0fd8f3a3"
        )
    );
}

#[test]
fn path_style_at_an_endpoint_with_a_port_is_signed_as_boto3_signs_it() {
    let endpoint = Some("http://127.0.0.1:9000".to_owned());
    let expected = format!(
        "http://127.0.0.1:9000/b-1/t/part-0.parquet{QUERY}\
         8f9c508cd1a76f57032d7836109fd75e31309efb8d9ce220ca323185d7669a79"
    );
    for path_style in [true, false] {
        let options = S3Options { endpoint: endpoint.clone(), path_style, ..options() };
        assert_eq!(sign(options, "t/part-0.parquet"), expected, "an address has no subdomains");
    }
}

#[test]
fn a_session_token_is_signed_as_boto3_signs_it() {
    let options = S3Options {
        endpoint: Some("https://store.example.com:8443/".to_owned()),
        session_token: Some(format!("to/ken+{}==", "x".repeat(300))),
        ..options()
    };
    let url = sign(options, "t/part-0.parquet");
    let token = format!(
        "&X-Amz-Expires=3600&X-Amz-Security-Token=to%2Fken%2B{}%3D%3D&X-Amz-SignedHeaders=host",
        "x".repeat(300)
    );
    assert!(url.starts_with("https://b-1.store.example.com:8443/t/part-0.parquet?X-Amz-Algorithm="), "{url}");
    assert!(url.contains(&token), "{url}");
    assert!(url.ends_with("=d2c73de660f79f5117ec4c3b03643add65a108c861487b6b3c4730ddb399e218"), "{url}");
}

#[test]
fn a_bucket_with_dots_goes_into_the_path_as_with_boto3() {
    assert_eq!(
        sign(S3Options { bucket: "dots.in.name".to_owned(), ..options() }, "t/part-0.parquet"),
        format!(
            "https://s3.eu-central-1.amazonaws.com/dots.in.name/t/part-0.parquet{QUERY}\
             6bc1c74d44b5974cf311acbcba61dc15cd02fbf90b2feffe3a3d6c963f009ea5"
        )
    );
}

#[test]
fn china_has_a_domain_of_its_own() {
    let url = sign(
        S3Options { region: "cn-north-1".to_owned(), path_style: true, ..options() },
        "t/part-0.parquet",
    );
    assert!(url.starts_with("https://s3.cn-north-1.amazonaws.com.cn/b-1/t/part-0.parquet?"), "{url}");
    assert!(url.ends_with("=96fd3530eec1146d8ef02c7b68a96cec447c26e963235fc472f91fd0d3a70418"), "{url}");
}

#[test]
fn the_port_of_the_scheme_is_not_part_of_the_host() {
    let at = |endpoint: &str| sign(S3Options { endpoint: Some(endpoint.to_owned()), ..options() }, "k");
    assert_eq!(at("http://store.example.com:80"), at("http://store.example.com"));
}

#[test]
fn endpoints_that_are_no_origin_are_refused() {
    for endpoint in ["", "store.example.com", "ftp://h", "http://user:secret@h", "http://h?x=1", "http://h#f"]
    {
        let refused = Signer::s3(S3Options { endpoint: Some(endpoint.to_owned()), ..options() });
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{endpoint}");
    }
    for bucket in ["", "a/b"] {
        assert!(Signer::s3(S3Options { bucket: bucket.to_owned(), ..options() }).is_err(), "{bucket}");
    }
}

#[test]
fn a_url_dies_before_its_credentials_and_within_seven_days() {
    let signer =
        |credentials_expire_ms| Signer::s3(S3Options { credentials_expire_ms, ..options() }).unwrap();
    let expires = |credentials, lifetime| signer(credentials).sign("k", NOW_MS + 999, lifetime).unwrap().1;
    assert_eq!(expires(None, 3600), NOW_MS + 3_600_000);
    assert_eq!(expires(None, 30 * 86_400), NOW_MS + 604_800_000);
    assert_eq!(expires(Some(NOW_MS + 900_000), 3600), NOW_MS + 840_000);
    let (url, _) = signer(Some(NOW_MS + 900_000)).sign("k", NOW_MS, 3600).unwrap();
    assert!(url.contains("&X-Amz-Expires=840&"), "{url}");
    for expire_ms in [NOW_MS - 1, NOW_MS, NOW_MS + 60_000] {
        let dead = signer(Some(expire_ms)).sign("k", NOW_MS, 3600);
        assert!(matches!(dead, Err(Error::StorageDenied { .. })), "{expire_ms}");
    }
    assert!(matches!(signer(None).sign("k", NOW_MS, 0), Err(Error::InvalidArgument(_))));
}

#[test]
fn debug_shows_no_secret() {
    let signer = Signer::s3(S3Options { session_token: Some("to+ken".to_owned()), ..options() }).unwrap();
    let root = SigningRoot::new("s3://b-1/t", signer.clone()).unwrap();
    let set = SignerSet::new(root, vec![]);
    let stream = set.stream(NOW_MS, 60).unwrap();
    for text in [format!("{signer:?}"), format!("{set:?}"), format!("{stream:?}"), format!("{signer:#?}")] {
        for secret in ["AK/ID+1", "se/cret+key=", "to+ken"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn the_signing_key_changes_with_the_day() {
    let signer = Signer::s3(options()).unwrap();
    for now_ms in [NOW_MS, NOW_MS + 86_400_000, NOW_MS] {
        let fresh = Signer::s3(options()).unwrap();
        assert_eq!(signer.sign("k", now_ms, 60).unwrap(), fresh.sign("k", now_ms, 60).unwrap());
    }
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (seconds, expected) in [
        (0, "19700101T000000Z"),
        (951_782_399, "20000228T235959Z"),
        (951_782_400, "20000229T000000Z"),
        (951_868_800, "20000301T000000Z"),
        (1_709_251_198, "20240229T235958Z"),
        (4_107_542_399, "21000228T235959Z"),
        (4_107_542_400, "21000301T000000Z"),
        (-1, "19691231T235959Z"),
    ] {
        assert_eq!(utc_basic(seconds).unwrap(), expected);
    }
    assert!(utc_basic(i64::MAX / 1000).is_err());
}

/// Signs step by step as in the AWS documentation, with the hash crates.
fn slow_signature(options: &S3Options, host: &str, path: &str, query: &str) -> String {
    use hmac::{Hmac, KeyInit, Mac};
    let hmac = |key: &[u8], text: &str| {
        let mut hmac = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
        hmac.update(text.as_bytes());
        hmac.finalize().into_bytes().to_vec()
    };
    let canonical = format!("GET\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
    let scope = format!("20240229/{}/s3/aws4_request", options.region);
    let digest = hex(&sha2::Sha256::digest(canonical.as_bytes()));
    let string_to_sign = format!("AWS4-HMAC-SHA256\n20240229T235958Z\n{scope}\n{digest}");
    let key = format!("AWS4{}", options.secret_access_key).into_bytes();
    let key = ["20240229", options.region.as_str(), "s3", "aws4_request"]
        .iter()
        .fold(key, |key, part| hmac(&key, part));
    hex(&hmac(&key, &string_to_sign))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stream_of_any_paths_is_signed_as_the_documents_say(
        paths in prop_oneof![
            prop::collection::vec("[a-z0-9=%/é -]{1,200}", 1..60),
            // Groups of paths of one length: of few lengths, and of more than have a place of their own.
            prop::collection::vec("[a-z]{100}|[a-z=]{37}|[a-z]{150}", 1..100),
            prop::collection::vec("[a-z]{1,12}", 1..300),
        ],
        region in "[a-z]{2}-[a-z]{4,40}-[1-3]",
        prefix in "[a-z]{0,90}",
        portable in any::<bool>(),
    ) {
        let options = S3Options { region, portable, ..options() };
        let root = SigningRoot::new(&format!("s3://b-1/{prefix}"), Signer::s3(options.clone()).unwrap()).unwrap();
        let mut stream = SignerSet::new(root, vec![]).stream(NOW_MS, 60).unwrap();
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        let is_name = |path: &str| percent_decode(path).is_some_and(|key| !key.contains('\0'));
        for path in paths.iter().filter(|path| !path.starts_with('/') && is_name(path)) {
            stream.append(path, &mut out).unwrap();
            ends.push(out.len());
        }
        stream.finish(&mut out);
        let mut start = 0;
        for end in ends {
            let url = std::str::from_utf8(&out[start..end]).unwrap();
            start = end;
            let (host, rest) = url.strip_prefix("https://").unwrap().split_once('/').unwrap();
            let (path, query) = rest.split_once('?').unwrap();
            let (query, signature) = query.split_once("&X-Amz-Signature=").unwrap();
            prop_assert_eq!(slow_signature(&options, host, &format!("/{path}"), query), signature);
        }
    }
}
