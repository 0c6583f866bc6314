use std::io::{Read, Write};
use std::net::TcpListener;

use crate::Error;
use crate::storage::{AzureOptions, GcsOptions, S3Credentials, S3Options, Storage};

/// A service whose answer is a status and a body for the head of a request. Ends with the test process.
fn answering(answer: impl Fn(&str) -> (String, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && connection.read_exact(&mut byte).is_ok() {
                head.extend(byte);
            }
            let (status, body) = answer(&String::from_utf8(head).unwrap());
            let length = body.len();
            let sent =
                format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            // The client may be gone.
            let _ = connection.write_all(sent.as_bytes());
        }
    });
    endpoint
}

/// A service with the same answer to every request.
fn service(status: &str, body: &str) -> String {
    let answer = (status.to_owned(), body.to_owned());
    answering(move |_| answer.clone())
}

/// A bucket of S3, a container of Azure and a bucket of Google at one endpoint.
fn storages(endpoint: &str) -> [Storage; 3] {
    let endpoint = Some(endpoint.to_owned());
    let s3 = Storage::s3(&S3Options {
        endpoint: endpoint.clone(),
        path_style: true,
        credentials: Some(S3Credentials {
            access_key_id: "id".into(),
            secret_access_key: "hush-key".into(),
            session_token: Some("hush-token".into()),
        }),
        ..S3Options::new("bucket", "us-east-1")
    });
    let azure = Storage::azure(&AzureOptions {
        endpoint: endpoint.clone(),
        ..AzureOptions::new("account1", "bucket")
    });
    let gcs = Storage::gcs(&GcsOptions { endpoint, ..GcsOptions::new("bucket") });
    let storages = [s3.unwrap(), azure.unwrap(), gcs.unwrap()];
    storages[1].replace_account_key("aHVzaA==").unwrap();
    storages[2].replace_bearer_token("hush-token").unwrap();
    storages
}

fn listings_and_reads(storage: &Storage, root: &str) -> ([Error; 2], [Error; 2]) {
    let file = format!("{root}/_delta_log/00000000000000000000.json");
    (
        [storage.list_log(root, "").unwrap_err(), storage.list_directories(root).unwrap_err()],
        [storage.read(&file).unwrap_err(), storage.read_many(&[file]).remove(0).unwrap_err()],
    )
}

#[test]
fn the_detail_of_a_denial_has_the_code_the_hints_and_the_message_of_the_answer_only() {
    let xml = |code: &str| {
        format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Told so.</Message><Token-0>hush</Token-0>\
             <Region>eu-west-9</Region><CanonicalRequest>hush</CanonicalRequest><StringToSign>hush</StringToSign>\
             <SignatureProvided>hush</SignatureProvided><AuthenticationErrorDetail>hush</AuthenticationErrorDetail>\
             </Error>"
        )
    };
    let json = r#"{"error":{"code":"AuthorizationFailure","message":"Told so.","details":"hush"}}"#;
    for (status, code, body) in [
        ("400 Bad Request", "ExpiredToken", xml("ExpiredToken")),
        ("403 Forbidden", "RequestTimeTooSkewed", xml("RequestTimeTooSkewed")),
        ("403 Forbidden", "SignatureDoesNotMatch", xml("SignatureDoesNotMatch")),
        ("403 Forbidden", "AuthorizationFailure", json.to_owned()),
        ("401 Unauthorized", "", "<html>hush".to_owned()),
    ] {
        for storage in storages(&service(status, &body)) {
            let (listings, reads) = listings_and_reads(&storage, "t");
            for error in listings.iter().chain(&reads) {
                assert!(matches!(error, Error::StorageDenied { .. }), "{error:?}");
                let detail = error.detail().unwrap();
                assert!(!detail.contains("hush") && !detail.contains("prefix="), "{detail}");
                assert!(detail.starts_with(&format!("the store answered {status}")), "{detail}");
                if !code.is_empty() {
                    assert!(detail.contains(&format!("<Code>{code}</Code>")), "{detail}");
                    assert!(detail.contains("> Told so. ("), "{detail}");
                }
                assert_eq!(
                    detail.contains("<Region>eu-west-9</Region>"),
                    body.contains("Region"),
                    "{detail}"
                );
                // The bucket and the kind of the request.
                assert!(detail.contains("/bucket"), "{detail}");
            }
        }
    }
}

#[test]
fn another_failure_has_the_parts_of_its_answer_too_and_does_not_deny_access() {
    let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region><Token-0>hush ExpiredToken";
    for storage in storages(&service("400 Bad Request", body)) {
        let (listings, reads) = listings_and_reads(&storage, "t");
        for error in listings.iter().chain(&reads) {
            assert!(matches!(error, Error::StorageUnavailable { .. }), "{error:?}");
            let detail = error.detail().unwrap();
            let parts = "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region>";
            assert!(detail.contains(parts) && !detail.contains("hush"), "{detail}");
        }
    }
}

#[test]
fn a_listing_of_an_absent_bucket_has_the_code_and_a_file_of_it_is_missing() {
    let codes = ["NoSuchBucket", "ContainerNotFound", "NoSuchBucket"];
    for (index, code) in codes.into_iter().enumerate() {
        let body = format!("<Error><Code>{code}</Code><Message>Not there.</Message></Error>");
        let storage = &storages(&service("404 Not Found", &body))[index];
        let (listings, reads) = listings_and_reads(storage, "t");
        for error in listings {
            assert!(matches!(error, Error::TableNotFound { .. }), "{error:?}");
            assert_eq!(error.to_string(), "the table has no Delta log");
            let expected = format!("the store answered 404 Not Found: <Code>{code}</Code> Not there.");
            assert_eq!(error.detail(), Some(expected.as_str()));
        }
        for error in reads {
            assert!(matches!(&error, Error::FileNotFound { file } if file.ends_with("0.json")), "{error:?}");
            assert_eq!(error.detail(), None);
        }
    }
}

#[test]
fn a_root_that_no_request_can_name_has_no_table_and_is_no_defect() {
    // Nothing listens there: a request would be StorageUnavailable.
    for storage in storages("http://127.0.0.1:1") {
        for root in ["a//b", "./x", "a/../b", "a/.", "/a", "a\nb"] {
            let (listings, reads) = listings_and_reads(&storage, root);
            for error in listings.iter().chain(&reads) {
                assert!(matches!(error, Error::TableNotFound { .. }), "{root}: {error:?}");
                assert!(
                    error.detail().unwrap().starts_with("its location has an empty"),
                    "{root}: {error:?}"
                );
            }
        }
        for file in ["t/_delta_log/_sidecars//x", "_delta_log/../x"] {
            let error = storage.read(file).unwrap_err();
            assert!(matches!(error, Error::InvalidPath(_)), "{error:?}");
        }
    }
}

/// A bucket of S3 or Google with directories, which lists in pages of at most four. Without `offsets` it ignores
/// `start-after`.
fn bucket(prefixes: &'static [&'static str], offsets: bool) -> String {
    answering(move |head| {
        let target = head.split(' ').nth(1).unwrap_or_default();
        let url = url::Url::parse("http://x").unwrap().join(target).unwrap();
        let value = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value);
        let from = value("continuation-token").or_else(|| value("start-after").filter(|_| offsets));
        let from = from.unwrap_or_default();
        let size = value("max-keys").map_or(4, |size| size.parse::<usize>().unwrap()).min(4);
        let rest = prefixes.iter().filter(|prefix| **prefix > &*from).collect::<Vec<_>>();
        let page = &rest[..size.min(rest.len())];
        let entry = |prefix: &&str| format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>");
        let entries = page.iter().copied().map(entry).collect::<String>();
        let token = match page.last() {
            Some(last) if page.len() < rest.len() => {
                format!("<NextContinuationToken>{last}</NextContinuationToken>")
            }
            _ => String::new(),
        };
        ("200 OK".to_owned(), format!("<ListBucketResult>{entries}{token}</ListBucketResult>"))
    })
}

#[test]
fn directories_are_listed_beside_keys_that_no_client_can_name() {
    let prefixes = &["w/../", "w/./", "w//", "w/a/", "w/b/", "w/c/", "w/d/", "w/e\u{7f}/", "w/f/", "w/g/"];
    for (index, storage) in storages(&bucket(prefixes, true)).iter().enumerate() {
        // Azure has another form of listings.
        if index != 1 {
            let found = storage.list_directories("w").unwrap();
            assert_eq!(found.names, ["a", "b", "c", "d", "f", "g"]);
            assert!(!found.is_truncated);
        }
    }
}

#[test]
fn a_listing_ends_where_the_store_does_not_continue_after_a_key() {
    let prefixes = &["w/a/", "w/b\u{7f}/", "w/c/"];
    let found = storages(&bucket(prefixes, false))[0].list_directories("w").unwrap();
    assert_eq!(found.names, ["a"]);
    assert!(found.is_truncated);
}

#[test]
fn a_log_beside_such_a_key_is_corrupt_and_its_store_does_not_fail() {
    let body = "<ListBucketResult><Contents><Key>t/_delta_log//x</Key><Size>1</Size>\
                <LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>";
    let error = storages(&service("200 OK", body))[0].list_log("t", "").unwrap_err();
    assert!(matches!(error, Error::CorruptLog { .. }), "{error:?}");
}

#[test]
fn a_key_that_no_object_can_have_is_a_missing_file_and_no_failure_of_the_store() {
    for code in ["KeyTooLongError", "XMinioInvalidObjectName", "InvalidUri"] {
        let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
        let error =
            storages(&service("400 Bad Request", &body))[0].read("t/_delta_log/_sidecars/x").unwrap_err();
        assert!(matches!(error, Error::FileNotFound { .. }), "{error:?}");
    }
    let error = Storage::local().read(&format!("/{}", "x".repeat(1000))).unwrap_err();
    assert!(matches!(error, Error::FileNotFound { .. }), "{error:?}");
}

#[test]
fn a_file_of_another_size_than_its_log_states_is_corrupt_and_no_failure_of_the_store() {
    let range = "206 Partial Content\r\nETag: \"tag\"\r\nLast-Modified: Fri, 24 May 2013 00:00:00 GMT\r\n\
                 Content-Range: bytes 0-3/4";
    for (answer, body) in
        [(range, "file"), ("416 Range Not Satisfiable", "<Error><Code>InvalidRange</Code></Error>")]
    {
        let storage = &storages(&service(answer, body))[0];
        let stated = storage.open_stated("t/_delta_log/_sidecars/x", 5).unwrap();
        let error = stated.read_range(0, 4).unwrap_err();
        assert!(matches!(error, Error::CorruptLog { .. }), "{error:?}");
        let listed = storage.open("t/_delta_log/x", Some(5), None).unwrap();
        let error = listed.read_range(0, 4).unwrap_err();
        assert!(matches!(error, Error::StorageUnavailable { .. }), "{error:?}");
    }
}
