use proptest::prelude::*;

use super::*;
use crate::log_path::percent_decode;
use crate::sign::{Signer, SignerSet, SigningRoot};

/// 2024-02-29T23:59:58Z
const NOW_MS: i64 = 1_709_251_198_000;

/// The account and the key that the emulator Azurite documents.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Signatures by `generate_blob_sas` of azure-storage-blob 12.31.1 for the version 2022-11-02.
const OF_ACCOUNT_KEY: [(&str, &str); 7] = [
    ("t/p=a%20b/x.parquet", "h67YllZQTTbBAROZeCsK1RB3z+vKhxqSzmCI6cM1chw="),
    ("t/p=a b/x", "x9JCM3bJknItEP8aqFcAd3hNCg4uaVdtaDXNHUa+REM="),
    ("t/p=é/x", "ES94c5AAsFYlesv/NJTlO0DN1XRYFnOHN/VvajKqgD8="),
    ("x+y", "ZFewnzGtiRKkMqggTGXU9UjSKUaOAqrxyPuwbJuhkZ4="),
    ("q!'()*@$&,;:~", "7J6h2xWUqNOHubn4uDYyb5Jlqzxs8Z3S7vYHL79niU8="),
    ("%41", "Ek/yOaKodc4GGAMFDNwFgfNugmFl8J2uh9snNpov9YM="),
    ("plain/file.parquet", "E5uxEWt37A/dI8cwSgRAyUZy6jWRp0X/rLTLQ8Xzf6c="),
];

/// Signatures by the documented string to sign of a user delegation SAS, computed with Python.
const OF_DELEGATION_KEY: [(&str, &str); 7] = [
    ("t/p=a%20b/x.parquet", "ULywdsAZXOq+UzuZc+l0UmOx2HV2MOXhEh4Au52MLFQ="),
    ("t/p=a b/x", "fGdflSfjb7ZMrqPIZayZ2tYMR+Hi2ul7Ft96mEKxEhQ="),
    ("t/p=é/x", "PZVZdWRucvQRQUL0qsOQ42emh5ftDiSXKp+aBlk7aS4="),
    ("x+y", "p1Zr4a4JBU834zFPU/pXqzoGv7aRveKqGB1EjPA/kHs="),
    ("q!'()*@$&,;:~", "O5mtAIqX7penQ5ybqpuPwJqH3/lXlljqAGFEVu6HbT4="),
    ("%41", "kve/uICbgy04TgsTNhNSsGMGlWj8fWgl1l9OYJR567U="),
    ("plain/file.parquet", "/YcQsD9jPLwg8tRSQBKUkvAmTARyoE5O7l4n0cV4ezI="),
];

fn options(key: AzureKey) -> AzureOptions {
    AzureOptions::new(ACCOUNT, "data-1", key)
}

fn account_key() -> AzureKey {
    AzureKey::Account(KEY.to_owned())
}

fn delegation_key() -> AzureKey {
    AzureKey::Delegation(DelegationKey {
        object_id: "8c2a0d3e-0000-4000-8000-0123456789ab".to_owned(),
        tenant_id: "72f988bf-86f1-41af-91ab-2d7cd011db47".to_owned(),
        start: "2024-02-29T20:00:00Z".to_owned(),
        expiry: "2024-03-05T20:00:00Z".to_owned(),
        service: "b".to_owned(),
        version: "2022-11-02".to_owned(),
        value: KEY.to_owned(),
    })
}

/// The URL before the signature, and the decoded signature.
fn sign(options: AzureOptions, key: &str) -> (String, String) {
    let (url, _) = Signer::azure(options).unwrap().sign(key, NOW_MS, 3600).unwrap();
    let (url, signature) = url.split_once("&sig=").unwrap();
    assert!(!signature.contains(['+', '/', '=']));
    (url.to_owned(), percent_decode(signature).unwrap().into_owned())
}

#[test]
fn signatures_equal_those_of_the_sdk_and_of_the_documented_string() {
    for (key, vectors) in [(account_key(), OF_ACCOUNT_KEY), (delegation_key(), OF_DELEGATION_KEY)] {
        for (name, expected) in vectors {
            for portable in [false, true] {
                let (url, signature) = sign(AzureOptions { portable, ..options(key.clone()) }, name);
                assert_eq!(signature, expected, "{name}");
                let (path, _) = url.split_once('?').unwrap();
                let key =
                    path.strip_prefix("https://devstoreaccount1.blob.core.windows.net/data-1/").unwrap();
                assert_eq!(percent_decode(key).unwrap(), name);
            }
        }
    }
}

#[test]
fn the_query_has_what_the_string_to_sign_has() {
    let (url, _) = sign(options(account_key()), "a");
    let query = "sv=2022-11-02&se=2024-03-01T00%3A59%3A58Z&sr=b&sp=r&spr=https";
    assert_eq!(url, format!("https://devstoreaccount1.blob.core.windows.net/data-1/a?{query}"));
    let (url, _) = sign(options(delegation_key()), "a");
    assert!(url.ends_with(
        "&skoid=8c2a0d3e-0000-4000-8000-0123456789ab&sktid=72f988bf-86f1-41af-91ab-2d7cd011db47\
         &skt=2024-02-29T20%3A00%3A00Z&ske=2024-03-05T20%3A00%3A00Z&sks=b&skv=2022-11-02"
    ));
    let endpoint = Some("http://127.0.0.1:10000/devstoreaccount1".to_owned());
    let (url, _) = sign(AzureOptions { endpoint, ..options(account_key()) }, "a");
    assert!(url.starts_with("http://127.0.0.1:10000/devstoreaccount1/data-1/a?"));
    assert!(!url.contains("spr="), "a store without TLS refuses it");
}

#[test]
fn a_url_expires_before_the_delegation_key() {
    let signer = Signer::azure(options(delegation_key())).unwrap();
    let key_expires_ms = 1_709_668_800_000;
    let (_, expires_ms) = signer.sign("a", key_expires_ms - 600_000, 3600).unwrap();
    assert_eq!(expires_ms, key_expires_ms - 60_000);
    let expired = signer.sign("a", key_expires_ms, 3600);
    assert!(matches!(expired, Err(Error::StorageDenied { .. })), "{expired:?}");
}

#[test]
fn a_key_may_have_unused_bits_in_its_last_character() {
    let urls = ["QUJDRA==", "QUJDRB=="].map(|key| {
        let signer = Signer::azure(options(AzureKey::Account(key.to_owned()))).unwrap();
        signer.sign("a", NOW_MS, 3600).unwrap().0
    });
    assert_eq!(urls[0], urls[1]);
}

#[test]
fn what_is_no_account_container_key_or_endpoint_is_refused() {
    let good = options(account_key());
    for bad in [
        AzureOptions { account: "Acct".to_owned(), ..good.clone() },
        AzureOptions { account: "a/b".to_owned(), ..good.clone() },
        AzureOptions { container: "a".to_owned(), ..good.clone() },
        AzureOptions { container: "a/../b".to_owned(), ..good.clone() },
        AzureOptions { endpoint: Some("ftp://host".to_owned()), ..good.clone() },
        AzureOptions { endpoint: Some("https://host/?q".to_owned()), ..good.clone() },
        AzureOptions { key: AzureKey::Account("no base64!".to_owned()), ..good.clone() },
        AzureOptions { key: AzureKey::Account(String::new()), ..good.clone() },
    ] {
        let refused = Signer::azure(bad.clone());
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{bad:?}");
    }
    let shown = format!("{:?} {:?}", Signer::azure(good).unwrap(), options(delegation_key()));
    assert!(!shown.contains("Eby8") && !shown.contains("8c2a0d3e"), "{shown}");
}

proptest! {
    /// In groups of any composition, each signature is that of its own key.
    #[test]
    fn urls_of_a_stream_are_those_of_single_keys(
        keys in prop::collection::vec("[a-z0-9 %+=é/]{1,40}", 1..70),
        portable in any::<bool>(),
    ) {
        let options = AzureOptions { portable, ..options(account_key()) };
        let signer = Signer::azure(options.clone()).unwrap();
        let root = SigningRoot::new("abfss://data-1@devstoreaccount1.dfs.core.windows.net/t", signer.clone());
        let mut stream = SignerSet::new(root.unwrap(), Vec::new()).stream(NOW_MS, 3600).unwrap();
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        for key in &keys {
            stream.append_unencoded(key, &mut out).unwrap();
            ends.push(out.len());
        }
        stream.finish(&mut out);
        let mut start = 0;
        for (key, end) in keys.iter().zip(ends) {
            let (alone, _) = signer.sign(&format!("t/{key}"), NOW_MS, 3600).unwrap();
            prop_assert_eq!(std::str::from_utf8(&out[start..end]).unwrap(), alone);
            start = end;
        }
    }
}
