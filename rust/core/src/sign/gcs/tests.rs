use serde_json::Value;

use super::*;
use crate::Error;
use crate::sign::{Signer, SignerSet, SigningRoot};

/// 2024-02-29T23:59:58Z
const NOW_MS: i64 = 1_709_251_198_000;

/// A key that was made for these tests.
const PRIVATE_KEY: &str = include_str!("test_key.pem");

/// URLs by `generate_signed_url` of google-cloud-storage 3.17.1, and by the documented steps for an HMAC key, computed
/// with Python.
const VECTORS: &str = include_str!("vectors.json");

fn options(key: GcsKey) -> GcsOptions {
    GcsOptions::new("bu_cket.x", key)
}

fn service_account() -> GcsKey {
    GcsKey::ServiceAccount {
        email: "signer@project.iam.gserviceaccount.com".to_owned(),
        private_key: PRIVATE_KEY.to_owned(),
    }
}

fn hmac() -> GcsKey {
    GcsKey::Hmac { access_id: "GOOG1EID".to_owned(), secret: "se/cret".to_owned() }
}

fn sign(options: GcsOptions, key: &str) -> String {
    Signer::gcs(options).unwrap().sign(key, NOW_MS, 3600).unwrap().0
}

#[test]
fn urls_equal_those_of_the_sdk_and_of_the_documented_steps() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for (name, key) in [("rsa", service_account()), ("hmac", hmac())] {
        for vector in vectors[name].as_array().unwrap() {
            let user_project = vector["userProject"].as_str().map(str::to_owned);
            for portable in [false, true] {
                let options =
                    GcsOptions { user_project: user_project.clone(), portable, ..options(key.clone()) };
                assert_eq!(sign(options, vector["key"].as_str().unwrap()), vector["url"].as_str().unwrap());
            }
        }
    }
}

#[test]
fn a_stream_signs_by_rsa_what_a_single_key_has() {
    let signer = Signer::gcs(options(service_account())).unwrap();
    let root = SigningRoot::new("gs://bu_cket.x/t/", signer.clone()).unwrap();
    let mut stream = SignerSet::new(root, Vec::new()).stream(NOW_MS, 3600).unwrap();
    let keys: Vec<String> = (0..20).map(|number| format!("p={}/{number}", "x".repeat(number % 3))).collect();
    let (mut out, mut expected) = (Vec::new(), String::new());
    for key in &keys {
        stream.append_unencoded(key, &mut out).unwrap();
        expected.push_str(&signer.sign(&format!("t/{key}"), NOW_MS, 3600).unwrap().0);
    }
    stream.finish(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn what_is_no_private_key_is_refused_without_showing_it() {
    let body = PRIVATE_KEY.replace('M', "N");
    for private_key in
        ["", "secret", body.as_str(), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
    {
        let email = String::new();
        let refused =
            Signer::gcs(options(GcsKey::ServiceAccount { email, private_key: private_key.to_owned() }));
        let Err(Error::InvalidArgument(said)) = refused else { panic!("accepted: {private_key}") };
        assert_eq!(said, "the private key is no RSA key in PEM form");
    }
    let shown = format!("{:?} {:?}", Signer::gcs(options(service_account())).unwrap(), options(hmac()));
    assert!(
        !shown.contains("PRIVATE") && !shown.contains("se/cret") && !shown.contains("GOOG1EID"),
        "{shown}"
    );
}
