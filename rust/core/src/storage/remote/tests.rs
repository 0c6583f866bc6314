use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::Error;
use crate::storage::{
    AzureOptions, GcsOptions, Inner, LogFileEntry, MAX_UNLISTED_BYTES, RequestTimes, S3Credentials,
    S3Options, Storage, runtime,
};

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
            let length = format!("Content-Length: {}\r\n", body.len());
            let length = if status.contains("chunked") { "" } else { &length };
            let sent = format!("HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n{body}");
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

/// Reads an object by one request, and returns the request's head too. `open` takes the endpoint.
pub(in crate::storage) fn head_of_a_read(
    key: &str,
    open: impl FnOnce(&str) -> Storage,
) -> (crate::Result<Bytes>, String) {
    let (sender, heads) = std::sync::mpsc::channel();
    let endpoint = answering(move |head| {
        sender.send(head.to_owned()).unwrap();
        (format!("200 OK\r\nETag: \"tag\"\r\n{TIME}"), "file".into())
    });
    (open(&endpoint).read(key), heads.recv().unwrap())
}

fn keys() -> S3Credentials {
    S3Credentials {
        access_key_id: "id".into(),
        secret_access_key: "hush-key".into(),
        session_token: Some("hush-token".into()),
    }
}

fn s3_options(endpoint: &str) -> S3Options {
    let (endpoint, credentials) = (Some(endpoint.to_owned()), Some(keys()));
    S3Options { endpoint, path_style: true, credentials, ..S3Options::new("bucket", "us-east-1") }
}

/// A bucket of S3, a container of Azure and a bucket of Google at one endpoint.
fn storages(endpoint: &str) -> [Storage; 3] {
    // A lie is repeated, so that retries only cost time.
    let times = RequestTimes { retries: Duration::ZERO, ..RequestTimes::default() };
    let s3 = Storage::s3(&S3Options { times, ..s3_options(endpoint) });
    let endpoint = Some(endpoint.to_owned());
    let azure = Storage::azure(&AzureOptions {
        endpoint: endpoint.clone(),
        times,
        ..AzureOptions::new("account1", "bucket")
    });
    let gcs = Storage::gcs(&GcsOptions { endpoint, times, ..GcsOptions::new("bucket") });
    let storages = [s3.unwrap(), azure.unwrap(), gcs.unwrap()];
    storages[1].replace_account_key("aHVzaA==").unwrap();
    storages[2].replace_bearer_token("hush-token").unwrap();
    storages
}

/// The errors of listings of a table.
fn unlisted(storage: &Storage, root: &str) -> [Error; 2] {
    [storage.list_log(root, "").unwrap_err(), storage.list_directories(root).unwrap_err()]
}

/// The errors of reads of a commit.
fn unread(storage: &Storage, root: &str) -> [Error; 2] {
    let file = format!("{root}/_delta_log/00000000000000000000.json");
    let many = storage.read_log_files(root, &[&commit(4)]).remove(0);
    [storage.read(&file).unwrap_err(), many.unwrap_err()]
}

fn failed(storage: &Storage, root: &str) -> Vec<Error> {
    unlisted(storage, root).into_iter().chain(unread(storage, root)).collect()
}

fn says(error: &Error, part: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(part))
}

/// A commit that was listed with the tag `t` and the time of [`TIME`].
fn commit(size: u64) -> LogFileEntry {
    LogFileEntry {
        name: "00000000000000000000.json".into(),
        size,
        modified_ms: 1_369_353_600_000,
        entity_tag: Some("t".into()),
        identity: 0,
    }
}

const TIME: &str = "Last-Modified: Fri, 24 May 2013 00:00:00 GMT";

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
            for error in failed(&storage, "t") {
                assert!(matches!(error, Error::StorageDenied { .. }), "{error:?}");
                let detail = error.detail().unwrap();
                assert!(!detail.contains("hush") && !detail.contains("prefix="), "{detail}");
                assert!(detail.starts_with(&format!("the store answered {status}")), "{detail}");
                if !code.is_empty() {
                    assert!(detail.contains(&format!("<Code>{code}</Code>")), "{detail}");
                    assert!(detail.contains("> Told so. ("), "{detail}");
                }
                let has_region = detail.contains("<Region>eu-west-9</Region>");
                assert_eq!(has_region, body.contains("Region"), "{detail}");
                // The bucket and the kind of the request.
                assert!(detail.contains("/bucket"), "{detail}");
            }
        }
    }
}

#[test]
fn another_refusal_has_the_parts_of_its_answer_too_and_is_no_failure_of_the_store() {
    let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region><Token-0>hush ExpiredToken";
    for storage in storages(&service("400 Bad Request", body)) {
        for error in failed(&storage, "t") {
            assert!(matches!(error, Error::StorageRefused { .. }), "{error:?}");
            let parts = "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region>";
            assert!(says(&error, parts) && !says(&error, "hush"), "{error:?}");
        }
    }
}

#[test]
fn a_listing_of_an_absent_bucket_has_the_code_and_a_file_of_it_is_missing() {
    let codes = ["NoSuchBucket", "ContainerNotFound", "NoSuchBucket"];
    for (index, code) in codes.into_iter().enumerate() {
        let body = format!("<Error><Code>{code}</Code><Message>Not there.</Message></Error>");
        let storage = &storages(&service("404 Not Found", &body))[index];
        for error in unlisted(storage, "t") {
            assert!(matches!(error, Error::TableNotFound { .. }), "{error:?}");
            assert_eq!(error.to_string(), "the table has no Delta log");
            let expected = format!("the store answered 404 Not Found: <Code>{code}</Code> Not there.");
            assert_eq!(error.detail(), Some(expected.as_str()));
        }
        for error in unread(storage, "t") {
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
            for error in failed(&storage, root) {
                assert!(matches!(error, Error::TableNotFound { .. }), "{root}: {error:?}");
                assert!(says(&error, "its location has an empty"), "{root}: {error:?}");
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
fn a_proxy_without_a_route_to_the_store_says_nothing_of_tables() {
    for body in [
        "",
        "default backend - 404",
        "<html><body>404</body></html>",
        r#"{"error": "Not-Found"}"#,
        r#"{"code": "NOT_FOUND", "message": "no route"}"#,
        "<Error><Code>NoSuchKey</Code></Error>",
    ] {
        for storage in storages(&service("404 Not Found", body)) {
            for error in unlisted(&storage, "t") {
                assert!(matches!(error, Error::StorageUnavailable { .. }), "{body}: {error:?}");
            }
        }
    }
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
        let listed = storage.open_listed("t/_delta_log/x", &commit(5)).unwrap();
        let error = listed.read_range(0, 4).unwrap_err();
        assert!(matches!(error, Error::FileReplaced { .. }), "{error:?}");
    }
}

/// A listing of one of the three stores.
#[derive(Default)]
struct Page<'a> {
    names: &'a [&'a str],
    directories: &'a [&'a str],
    is_truncated: bool,
    token: Option<&'a str>,
}

impl Page<'_> {
    /// The answer in the form of a store of [`storages`].
    fn answer(&self, index: usize) -> (String, String) {
        ("200 OK".into(), self.of_store(index))
    }

    fn of_store(&self, index: usize) -> String {
        let Self { names, directories, is_truncated, token } = self;
        if index == 1 {
            let blob = |name: &&str| {
                format!(
                    "<Blob><Name>{name}</Name><Properties><Last-Modified>Fri, 24 May 2013 00:00:00 GMT</Last-Modified>\
                     <Content-Length>4</Content-Length><Content-Type>x</Content-Type><Etag>t</Etag></Properties></Blob>"
                )
            };
            let blobs: String = names.iter().map(blob).collect();
            let directory = |name: &&str| format!("<BlobPrefix><Name>{name}</Name></BlobPrefix>");
            let prefixes: String = directories.iter().map(directory).collect();
            let marker = token.unwrap_or_default();
            return format!(
                "<?xml version=\"1.0\"?><EnumerationResults><Blobs>{blobs}{prefixes}</Blobs>\
                 <NextMarker>{marker}</NextMarker></EnumerationResults>"
            );
        }
        let object = |name: &&str| {
            format!(
                "<Contents><Key>{name}</Key><Size>4</Size><ETag>&quot;t&quot;</ETag>\
                 <LastModified>2013-05-24T00:00:00Z</LastModified></Contents>"
            )
        };
        let objects: String = names.iter().map(object).collect();
        let directory = |name: &&str| format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>");
        let prefixes: String = directories.iter().map(directory).collect();
        let token = token
            .map_or(String::new(), |token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
        format!(
            "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{objects}{prefixes}\
             {token}</ListBucketResult>"
        )
    }
}

fn query_of(head: &str, name: &str) -> Option<String> {
    let url = url::Url::parse("http://x").unwrap().join(head.split(' ').nth(1).unwrap_or_default()).unwrap();
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

const COMMITS: [&str; 4] = [
    "t/_delta_log/00000000000000000000.json",
    "t/_delta_log/00000000000000000001.json",
    "t/_delta_log/00000000000000000002.json",
    "t/_delta_log/_last_checkpoint",
];

fn listed(storage: &Storage) -> Result<usize, Error> {
    storage.list_log("t", "").map(|entries| entries.len())
}

#[test]
fn an_answer_that_is_no_listing_is_a_failure_of_the_store_and_no_empty_log() {
    for body in [
        "<html><body>It works</body></html>",
        "{\"items\": []}",
        "",
        "<Error><Code>SlowDown</Code><Message>Told so.</Message></Error>",
        "<ListBucketResult><Contents><Key>t/_delta_log/00000000000000000000.json</Key>",
        "<EnumerationResults><Blobs>",
    ] {
        for storage in storages(&service("200 OK", body)) {
            for error in unlisted(&storage, "t") {
                assert!(matches!(error, Error::StorageUnavailable { .. }), "{body}: {error:?}");
                let has_code = says(&error, "<Code>SlowDown</Code> Told so.");
                assert_eq!(has_code, body.contains("SlowDown"), "{error:?}");
            }
        }
    }
}

#[test]
fn an_object_that_marks_a_directory_is_no_file() {
    for index in 0..3 {
        let endpoint = answering(move |head| {
            let is_directory = query_of(head, "delimiter").is_some();
            let markers = ["t/_delta_log/", "t/_delta_log/00000000000000000001.json/"];
            let names = [&markers[..], &COMMITS].concat();
            let (names, directories): (&[_], &[_]) =
                if is_directory { (&["t/"], &["t/a/"]) } else { (&names, &[]) };
            let page = Page { names, directories, ..Page::default() }.of_store(index);
            // As S3Proxy lists directories.
            let bare = "<Contents><Key>t/_delta_log/_sidecars/</Key></Contents></ListBucketResult>";
            ("200 OK".into(), page.replace("</ListBucketResult>", bare))
        });
        let storage = &storages(&endpoint)[index];
        let names: Vec<_> = storage.list_log("t", "").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, COMMITS[..3].iter().map(|name| &name[13..]).collect::<Vec<_>>());
        assert_eq!(storage.list_directories("t").unwrap().names, ["a"]);
    }
}

#[test]
fn a_listing_may_have_times_in_the_forms_of_heads() {
    for (text, is_known) in [
        ("2013-05-24T00:00:00+00:00", true),
        ("2013-05-24T00:00:00.000", true),
        ("Fri, 24 May 2013 00:00:00 GMT", true),
        ("", false),
        ("1369353600", false),
    ] {
        for index in [0, 2] {
            let page = Page { names: &COMMITS, ..Page::default() }.of_store(index);
            let page = page.replace("2013-05-24T00:00:00Z", text);
            let storage = &storages(&service("200 OK", &page))[index];
            match storage.list_log("t", "") {
                Ok(files) => {
                    assert!(is_known && files.iter().all(|file| file.modified_ms == 1_369_353_600_000));
                }
                Err(error) => {
                    assert!(!is_known && matches!(error, Error::StorageRefused { .. }), "{text}: {error:?}");
                }
            }
        }
    }
}

#[test]
fn a_name_that_azure_encodes_is_listed_as_it_is() {
    let endpoint = answering(|head| {
        let is_directory = query_of(head, "delimiter").is_some();
        let (names, directories): (&[_], &[_]) = if is_directory {
            (&["ODD"], &["ODD%2F", "t/a/"])
        } else {
            (&[COMMITS[0], "t/_delta_log%2FODD"], &[])
        };
        let page = Page { names, directories, ..Page::default() }.of_store(1);
        // A name with a character that XML cannot have is encoded as a whole.
        let encoded = page.replace("<Name>ODD", "<Name Encoded=\"true\">t%2FODD");
        let encoded = encoded.replace("<Name>t/_delta_log%2F", "<Name Encoded=\"true\">t%2F_delta_log%2F");
        ("200 OK".into(), encoded.replace("ODD", "0%3Ca%26amp%3B%25%EF%BF%BF"))
    });
    let storage = &storages(&endpoint)[1];
    assert_eq!(storage.list_directories("t").unwrap().names, ["0<a&amp;%\u{ffff}", "a"]);
    let names: Vec<_> = storage.list_log("t", "").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["00000000000000000000.json", "0<a&amp;%\u{ffff}"]);
}

#[test]
fn a_listing_that_has_other_names_before_those_of_versions_is_read_on() {
    for index in [0, 2] {
        let endpoint = answering(move |head| {
            let is_second = query_of(head, "continuation-token").is_some();
            let names = if is_second { &COMMITS[..3] } else { &COMMITS[3..] };
            let token = (!is_second).then_some("b");
            Page { names, is_truncated: !is_second, token, ..Page::default() }.answer(index)
        });
        assert_eq!(listed(&storages(&endpoint)[index]).unwrap(), 3);
    }
}

#[test]
fn a_store_that_cannot_begin_at_a_name_is_asked_for_all_names() {
    // The order of their encrypted forms.
    let unordered: &[&str] = &[COMMITS[2], COMMITS[0], COMMITS[1], COMMITS[3]];
    for (index, all, after) in [
        (0, unordered, Some(2)),
        (0, &COMMITS, Some(0)),
        (1, &COMMITS, Some(0)),
        (2, &COMMITS, Some(0)),
        (0, &COMMITS, None),
        (1, &COMMITS, None),
    ] {
        let asked_after = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked_after);
        let endpoint = answering(move |head| {
            let is_after = ["start-after", "startFrom"].iter().any(|name| query_of(head, name).is_some());
            count.fetch_add(usize::from(is_after), Ordering::Relaxed);
            let page = |names| Page { names, ..Page::default() }.answer(index);
            match after {
                _ if !is_after => page(all),
                Some(count) => page(&all[..count]),
                None => ("400 Bad Request".into(), "<Error><Code>InvalidArgument</Code></Error>".into()),
            }
        });
        let storage = &storages(&endpoint)[index];
        if all == COMMITS {
            // The log ends before.
            assert_eq!(storage.list_log("t", "00000000000000000009.").unwrap(), []);
        }
        for _ in 0..2 {
            let listed = storage.list_log("t", "00000000000000000001.").unwrap();
            assert_eq!(
                listed.iter().map(|entry| &*entry.name).collect::<Vec<_>>(),
                [&COMMITS[1][13..], &COMMITS[2][13..]]
            );
        }
        let expected = match after {
            // One refusal says nothing of the next listing.
            None => 3,
            Some(0) => 2,
            Some(_) => 1,
        };
        assert_eq!(asked_after.load(Ordering::Relaxed), expected, "{index} {after:?}");
    }
}

#[test]
fn a_listing_that_is_truncated_without_a_token_goes_on_by_its_last_name() {
    for takes_names in [true, false] {
        for index in [0, 2] {
            let endpoint = answering(move |head| {
                let after = query_of(head, "start-after").filter(|_| takes_names).unwrap_or_default();
                if head.contains("out-of-order") {
                    let names = &["out-of-order/_delta_log/b", "out-of-order/_delta_log/a"];
                    return Page { names, ..Page::default() }.answer(index);
                }
                let is_directory = query_of(head, "delimiter").is_some();
                let all: &[&str] = if is_directory { &["t/a/", "t/b/", "t/c/"] } else { &COMMITS };
                let rest: Vec<&str> = all.iter().copied().filter(|name| *name > &*after).collect();
                let names = &rest[..rest.len().min(2)];
                let (names, directories) = if is_directory { (&[][..], names) } else { (names, &[][..]) };
                let is_truncated = rest.len() > 2;
                Page { names, directories, is_truncated, ..Page::default() }.answer(index)
            });
            let storage = &storages(&endpoint)[index];
            // One listing in another order says nothing of the next one.
            storage.list_log("out-of-order", "").unwrap();
            if takes_names {
                assert_eq!(listed(storage).unwrap(), 3);
                assert_eq!(storage.list_directories("t").unwrap().names, ["a", "b", "c"]);
            } else {
                for error in unlisted(storage, "t") {
                    assert!(says(&error, "does not advance"), "{error:?}");
                }
            }
        }
    }
}

#[test]
fn a_listing_ends_with_the_page_that_says_so_and_is_followed_by_no_other_names() {
    // The next page is the same one, an empty one, a part of it, or has more names after all, also behind known ones or
    // in another order.
    const OUT_OF_ORDER: [&str; 2] = [COMMITS[2], COMMITS[0]];
    for (next, count) in [
        (&COMMITS[..2], 2),
        (&[], 2),
        (&COMMITS[..1], 2),
        (&COMMITS[2..3], 3),
        (&COMMITS[1..3], 3),
        (&OUT_OF_ORDER[..], 3),
    ] {
        for index in [0, 2] {
            let endpoint = answering(move |head| {
                let is_directory = query_of(head, "delimiter").is_some();
                let names = if query_of(head, "continuation-token").is_some() { next } else { &COMMITS[..2] };
                let (names, directories) =
                    if is_directory { (&[][..], &["t/a/"][..]) } else { (names, &[][..]) };
                Page { names, directories, is_truncated: false, token: Some("more") }.answer(index)
            });
            let storage = &storages(&endpoint)[index];
            assert_eq!(listed(storage).unwrap(), count);
            let found = storage.list_directories("t").unwrap();
            assert_eq!((found.names, found.is_truncated), (vec!["a".to_owned()], false));
        }
    }
}

#[test]
fn a_listing_is_requested_with_its_query_as_it_is_signed() {
    // Some stores verify the signature of the query as it comes.
    let endpoint = answering(|head| {
        let is_as_signed = head.contains("prefix=a%20b%2A~%2B%2F");
        (if is_as_signed { "404 As Signed" } else { "403 Forbidden" }.into(), String::new())
    });
    for storage in storages(&endpoint) {
        for error in unlisted(&storage, "a b*~+") {
            assert!(says(&error, "404"), "{error:?}");
        }
    }
}

#[test]
fn a_listing_whose_pages_do_not_advance_ends_with_an_error() {
    for (tokens, problem) in [
        (&["a"][..], "names a page twice as the next one"),
        (&["a", "b"], "names a page twice as the next one"),
        (&["a", "b", "c", "d", "e"], "does not advance"),
    ] {
        for index in 0..3 {
            let endpoint = answering(move |head| {
                let token = query_of(head, "continuation-token").or_else(|| query_of(head, "marker"));
                let turn = tokens
                    .iter()
                    .position(|known| Some(*known) == token.as_deref())
                    .map_or(0, |turn| turn + 1);
                let token = Some(tokens[turn % tokens.len()]);
                let (names, directories): (&[_], &[_]) = match query_of(head, "delimiter") {
                    _ if tokens.len() <= 2 => (&[], &[]),
                    Some(_) => (&[], &["t/a/"]),
                    None => (&COMMITS[..1], &[]),
                };
                Page { names, directories, is_truncated: true, token }.answer(index)
            });
            let storage = &storages(&endpoint)[index];
            for error in unlisted(storage, "t") {
                assert!(says(&error, problem), "{error:?}");
            }
        }
    }
}

#[test]
fn a_listing_out_of_order_is_read_to_its_end() {
    // The first page ends with a name after all commits.
    let pages: [&'static [&'static str]; 2] = [&[COMMITS[1], COMMITS[3], COMMITS[0]], &[COMMITS[2]]];
    let past: [&'static [&'static str]; 2] = [&[COMMITS[1], COMMITS[0], COMMITS[3]], &[COMMITS[2]]];
    for pages in [pages, past] {
        for index in 0..3 {
            let endpoint = answering(move |head| {
                let is_second = head.contains("token=more") || head.contains("marker=more");
                let names = pages[usize::from(is_second)];
                let token = (!is_second).then_some("more");
                Page { names, is_truncated: !is_second, token, ..Page::default() }.answer(index)
            });
            assert_eq!(listed(&storages(&endpoint)[index]).unwrap(), 3, "{pages:?}");
        }
    }
}

#[test]
fn names_outside_of_the_listed_directory_are_no_listing_of_it() {
    for index in 0..3 {
        let page = Page { names: &["other/_delta_log/x"], ..Page::default() };
        let error = listed(&storages(&service("200 OK", &page.of_store(index)))[index]).unwrap_err();
        assert!(says(&error, "outside of the listed"), "{error:?}");
    }
}

#[test]
fn a_store_that_does_not_list_directories_is_not_one_without_any() {
    for index in 0..3 {
        let page = Page { names: &["t/a/x", "t/y"], ..Page::default() };
        let storage = &storages(&service("200 OK", &page.of_store(index)))[index];
        let error = storage.list_directories("t").unwrap_err();
        assert!(says(&error, "below the directories"), "{error:?}");
        let page = Page { names: &["t/y"], directories: &["t/a/"], ..Page::default() };
        let storage = &storages(&service("200 OK", &page.of_store(index)))[index];
        assert_eq!(storage.list_directories("t").unwrap().names, ["a"]);
    }
}

#[test]
fn a_listing_ends_with_the_time_of_its_request() {
    let endpoint = answering(|head| {
        let token = query_of(head, "continuation-token").map_or(0, |token| token.len());
        Page { is_truncated: true, token: Some(&"x".repeat(token + 1)), ..Page::default() }.answer(0)
    });
    let times = RequestTimes { listing: Duration::from_millis(100), ..RequestTimes::default() };
    let storage = Storage::s3(&S3Options { times, ..s3_options(&endpoint) }).unwrap();
    for error in unlisted(&storage, "t") {
        assert!(says(&error, "did not end within"), "{error:?}");
    }
}

#[test]
fn a_file_is_read_as_it_was_listed_or_not_at_all() {
    let other_time = "Last-Modified: Sat, 25 May 2013 00:00:00 GMT";
    for (head, body, is_listed) in [
        (format!("200 OK\r\nETag: \"t\"\r\n{TIME}"), "file", true),
        (format!("200 OK\r\nETag: \"t\"\r\n{other_time}"), "file", true),
        // Some stores send another tag than they list.
        (format!("200 OK\r\nETag: \"other\"\r\n{TIME}"), "file", true),
        (format!("200 OK\r\nETag: \"other\"\r\n{other_time}"), "file", false),
        (format!("200 OK\r\nETag: \"t\"\r\n{TIME}"), "fil", false),
        (format!("200 OK\r\nETag: \"t\"\r\n{TIME}"), "files", false),
        ("412 Precondition Failed".to_owned(), "", false),
    ] {
        for storage in storages(&service(&head, body)) {
            let one = storage.read_log_file("t", &commit(4));
            let many = storage.read_log_files("t", &[&commit(4)]).remove(0);
            let pending = storage.start_log_reads("t", vec![commit(4)]).wait().remove(0);
            for read in [one, many, pending] {
                match read {
                    Ok(content) => assert!(is_listed && content == "file", "{head} {body}"),
                    Err(Error::FileReplaced { .. }) => assert!(!is_listed, "{head} {body}"),
                    Err(error) => panic!("{head} {body}: {error:?}"),
                }
            }
        }
    }
}

#[test]
fn a_read_names_the_listed_tag_unless_the_store_sends_others() {
    // Some stores refuse to compare tags.
    let refusals =
        ["412 Precondition Failed", "400 Bad Request", "405 Method Not Allowed", "501 Not Implemented"];
    for (index, refusal) in (0..3).flat_map(|index| refusals.map(|refusal| (index, refusal))) {
        let (sender, heads) = std::sync::mpsc::channel();
        let endpoint = answering(move |head| {
            let is_conditional = head.to_ascii_lowercase().contains("if-match: \"t\"\r\n");
            sender.send(is_conditional).unwrap();
            let status = if is_conditional { refusal } else { "200 OK" };
            (format!("{status}\r\nETag: \"other\"\r\n{TIME}"), "file".into())
        });
        let storage = &storages(&endpoint)[index];
        for expected in [&[true, false][..], &[false]] {
            assert_eq!(storage.read_log_file("t", &commit(4)).unwrap(), "file", "{refusal}");
            assert_eq!(heads.try_iter().collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn a_whole_object_is_its_range_also_with_the_status_of_no_range() {
    let head = format!("200 OK\r\nETag: \"t\"\r\n{TIME}");
    for storage in storages(&service(&head, "file")) {
        let read = |size| storage.open_listed("t/a", &commit(size)).unwrap().read_range(0, 4);
        assert_eq!(read(4).unwrap(), "file");
        assert!(matches!(read(5), Err(Error::FileReplaced { .. })));
        let Inner::Remote(remote) = &storage.inner else { panic!("{storage:?}") };
        let part = runtime::block_on(remote.read_range("t/a", 1..4)).unwrap();
        assert!(matches!(part, Err(Error::StorageRefused { .. })));
    }
}

#[test]
fn an_answer_that_states_its_range_is_that_range_also_with_the_status_of_no_range() {
    // Of rclone 1.70.
    let head = format!("200 OK\r\nETag: \"t\"\r\n{TIME}\r\nContent-Range: bytes 1-3/4");
    for storage in storages(&service(&head, "ile")) {
        let Inner::Remote(remote) = &storage.inner else { panic!("{storage:?}") };
        let read = |range| runtime::block_on(remote.read_range("t/a", range)).unwrap();
        assert_eq!(read(1..4).unwrap().bytes, "ile");
        assert!(read(0..3).is_err());
    }
}

#[test]
fn a_store_that_refuses_the_tags_of_its_objects_is_read_in_ranges() {
    // Two windows.
    let size = 4 << 20;
    let endpoint = answering(move |head| {
        let head = head.to_ascii_lowercase();
        let range = head.split_once("range: bytes=").and_then(|(_, rest)| rest.lines().next());
        match range.and_then(|range| range.split_once('-')).filter(|_| !head.contains("if-match")) {
            Some((start, end)) => {
                let length = end.parse::<usize>().unwrap() + 1 - start.parse::<usize>().unwrap();
                let part = format!("Content-Range: bytes {start}-{end}/{size}");
                (format!("206 Partial Content\r\nETag: \"t\"\r\n{TIME}\r\n{part}"), "x".repeat(length))
            }
            None => ("412 Precondition Failed".into(), String::new()),
        }
    });
    for storage in storages(&endpoint) {
        let file = storage.open_listed("t/a", &commit(size)).unwrap();
        for file in [file.clone(), file.read_apart()] {
            for start in [0, size - 4] {
                assert_eq!(file.read_range(start, 4).unwrap(), "xxxx");
            }
        }
    }
}

#[test]
fn a_fault_of_one_object_is_none_of_its_store() {
    let error = |code: &str| format!("<Error><Code>{code}</Code><Message>Told so.</Message></Error>");
    for (status, code) in [
        ("400 Bad Request", "KMS.DisabledException"),
        ("400 Bad Request", "InvalidRequest"),
        ("403 Forbidden", "InvalidObjectState"),
        ("409 Conflict", "BlobArchived"),
        ("409 Conflict", "LeaseIdMissing"),
        ("405 Method Not Allowed", ""),
        ("501 Not Implemented", ""),
    ] {
        for storage in storages(&service(status, &error(code))) {
            let refused = storage.read("t/_delta_log/00000000000000000000.json").unwrap_err();
            assert!(matches!(refused, Error::StorageRefused { .. }), "{refused:?}");
            let detail = refused.detail().unwrap();
            assert!(detail.starts_with(&format!("the store answered {status}")), "{detail}");
            assert!(!detail.contains("already exists"), "{detail}");
            assert!(detail.contains(code), "{detail}");
            let error = storage.properties(&["t/a".into(), "t/b".into()]).unwrap_err();
            assert!(matches!(error, Error::StorageRefused { .. } | Error::StorageDenied { .. }), "{error:?}");
        }
    }
}

#[test]
fn a_busy_store_is_asked_again() {
    for (status, code) in [
        ("400 Bad Request", "RequestTimeout"),
        ("409 Conflict", "OperationAborted"),
        ("429 Too Many Requests", ""),
        ("503 Slow Down", "SlowDown"),
    ] {
        let requests = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&requests);
        let endpoint = answering(move |_| match seen.fetch_add(1, Ordering::Relaxed) {
            0 => (status.to_owned(), format!("<Error><Code>{code}</Code></Error>")),
            _ => (format!("200 OK\r\nETag: \"t\"\r\n{TIME}"), "file".into()),
        });
        let storage = Storage::s3(&s3_options(&endpoint));
        assert_eq!(storage.unwrap().read("t/a").unwrap(), "file");
        assert_eq!(requests.load(Ordering::Relaxed), 2, "{code}");
        for storage in storages(&service(status, &format!("<Error><Code>{code}</Code></Error>"))) {
            let error = storage.read("t/a").unwrap_err();
            assert!(matches!(error, Error::StorageUnavailable { .. }), "{error:?}");
        }
    }
}

#[test]
fn a_redirect_is_not_followed_and_names_the_region_of_the_bucket() {
    let followed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&followed);
    let other = answering(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        ("404 Not Found".into(), String::new())
    });
    for status in ["301 Moved Permanently".into(), format!("307 Temporary Redirect\r\nLocation: {other}/x")] {
        let endpoint = service(&format!("{status}\r\nx-amz-bucket-region: eu-west-9"), "");
        for error in failed(&storages(&endpoint)[0], "t") {
            assert!(matches!(error, Error::StorageRefused { .. }), "{error:?}");
            assert!(says(&error, "<Code>PermanentRedirect</Code><Region>eu-west-9</Region>"), "{error:?}");
        }
    }
    assert_eq!(followed.load(Ordering::Relaxed), 0);
}

#[test]
fn an_object_without_a_length_or_with_a_time_of_another_form_is_read() {
    for time in
        ["Friday, 24-May-13 00:00:00 GMT", "Fri May 24 00:00:00 2013", "2013-05-24T00:00:00Z", "yesterday"]
    {
        let head = format!("200 OK\r\nETag: \"t\"\r\nLast-Modified: {time}");
        for body in ["file", "fil", "files"] {
            let chunked = format!("{head}\r\nTransfer-Encoding: chunked");
            let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            for storage in storages(&service(&chunked, &chunk)) {
                match storage.read_log_file("t", &commit(4)) {
                    Ok(content) => assert!(body == "file" && content == body),
                    Err(Error::FileReplaced { .. }) => assert!(body != "file"),
                    Err(error) => panic!("{error:?}"),
                }
                assert_eq!(storage.read("t/_delta_log/_last_checkpoint").unwrap(), body);
            }
        }
        for storage in storages(&service(&head, "file")) {
            assert_eq!(storage.read_log_file("t", &commit(4)).unwrap(), "file");
        }
    }
}

#[test]
fn a_header_that_is_no_text_of_ascii_keeps_no_object_from_being_read() {
    let odd = "Content-Disposition: attachment; filename=\u{e9}\r\nCache-Control: \u{e9}\r\nx-amz-meta-a: \u{e9}\r\n\
               x-ms-meta-a: \u{e9}\r\nx-goog-meta-a: \u{e9}";
    for storage in storages(&service(&format!("200 OK\r\nETag: \"t\"\r\n{TIME}\r\n{odd}"), "file")) {
        assert_eq!(storage.read_log_file("t", &commit(4)).unwrap(), "file");
    }
}

#[test]
fn an_object_that_the_store_unpacks_is_refused_and_is_none_that_was_replaced() {
    let head = |status: &str, coding: &str| {
        format!("{status}\r\nETag: \"t\"\r\n{TIME}\r\nx-goog-stored-content-encoding: {coding}")
    };
    for storage in storages(&service(&head("200 OK", "gzip"), "more than was listed")) {
        let read = storage.read_log_file("t", &commit(4)).unwrap_err();
        let range = storage.open_listed("t/a", &commit(4)).unwrap().read_range(0, 4).unwrap_err();
        for error in [read, range] {
            assert!(matches!(error, Error::StorageRefused { .. }), "{error:?}");
            assert!(says(&error, "DecompressiveTranscoding"));
        }
    }
    for head in [head("200 OK", "identity"), head("200 OK\r\nContent-Encoding: gzip", "gzip")] {
        for storage in storages(&service(&head, "file")) {
            assert_eq!(storage.read_log_file("t", &commit(4)).unwrap(), "file");
        }
    }
}

#[test]
fn a_body_that_is_cut_off_and_not_continued_is_a_failure_that_passes() {
    // A chunk without its end; the request for the rest gets the whole object again.
    let head = format!("200 OK\r\nETag: \"t\"\r\n{TIME}\r\nTransfer-Encoding: chunked");
    let storage = Storage::s3(&s3_options(&service(&head, "4\r\nfi")));
    let error = storage.unwrap().read_log_file("t", &commit(4)).unwrap_err();
    assert!(matches!(error, Error::StorageUnavailable { .. }), "{error:?}");
}

#[test]
fn an_answer_without_end_is_not_collected() {
    // A chunk that never ends.
    let endless = |head: &str| {
        let chunk = format!("7fffffff\r\n{}", "\n".repeat((MAX_UNLISTED_BYTES + (1 << 20)) as usize));
        service(&format!("{head}\r\nETag: \"t\"\r\n{TIME}\r\nTransfer-Encoding: chunked"), &chunk)
    };
    for storage in storages(&endless("200 OK")) {
        let error = storage.read("t/_delta_log/_last_checkpoint").unwrap_err();
        assert!(matches!(error, Error::CorruptLog { .. }), "{error:?}");
    }
    for storage in storages(&endless("206 Partial Content\r\nContent-Range: bytes 0-3/4")) {
        let error = storage.open_listed("t/a", &commit(4)).unwrap().read_range(0, 4).unwrap_err();
        assert!(matches!(error, Error::FileReplaced { .. }), "{error:?}");
    }
}

#[test]
fn the_detail_of_a_failed_connection_says_why() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    for (endpoint, problem) in
        [(&*closed, "nothing listens at the endpoint"), (&*silent_url, "does not answer in time")]
    {
        let (request, retries) = (Duration::from_millis(100), Duration::ZERO);
        let times = RequestTimes { request, retries, ..RequestTimes::default() };
        let storage = Storage::s3(&S3Options { times, ..s3_options(endpoint) });
        let error = storage.unwrap().read("t/a").unwrap_err();
        assert!(matches!(error, Error::StorageUnavailable { .. }), "{error:?}");
        assert!(says(&error, problem), "{error:?}");
    }
}
