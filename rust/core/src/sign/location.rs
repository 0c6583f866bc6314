//! The canonical form of an absolute location in a log or in the configuration.
//!
//! `s3a:` and `s3n:` become `s3:`; the forms of Azure become `az:account/container/key`; [`DataPath`] recognises local
//! files. A form of Azure without an account has that of the table's own root.

use crate::log_path::DataPath;

/// Appends the canonical form of a location, with its path written by `append_path`. `account` is that of locations of
/// Azure that name none.
pub(super) fn append_canonical(
    location: DataPath<'_>,
    account: Option<&str>,
    out: &mut Vec<u8>,
    append_path: fn(&[u8], &mut Vec<u8>),
) {
    match location {
        DataPath::Relative(path) => append_path(path.as_bytes(), out),
        DataPath::Local(path) => {
            out.extend_from_slice(b"file://");
            append_path(path.as_bytes(), out);
        }
        DataPath::Uri { scheme, authority, key } => {
            if let Some(place) = AzurePlace::of(scheme, authority, account) {
                out.extend_from_slice(b"az:");
                out.extend(place.account.bytes().map(|byte| byte.to_ascii_lowercase()));
                out.push(b'/');
                if let Some(container) = place.container {
                    out.extend_from_slice(container.as_bytes());
                    out.push(b'/');
                }
                return append_path(key.as_bytes(), out);
            }
            let is_s3 = ["s3", "s3a", "s3n"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
            if is_s3 {
                out.extend_from_slice(b"s3");
            } else {
                out.extend(scheme.bytes().map(|byte| byte.to_ascii_lowercase()));
            }
            out.extend_from_slice(b"://");
            out.extend_from_slice(authority.as_bytes());
            out.push(b'/');
            append_path(key.as_bytes(), out);
        }
    }
}

/// The account and the container in the authority of a location.
struct AzurePlace<'a> {
    account: &'a str,
    /// `None` if it is the first segment of the path.
    container: Option<&'a str>,
}

impl<'a> AzurePlace<'a> {
    /// Recognises `container@account.{dfs,blob}.core...` and `container` with the schemes of Hadoop and fsspec, and
    /// `account.{dfs,blob}.core...` with `https`.
    fn of(scheme: &str, authority: &'a str, own_account: Option<&'a str>) -> Option<Self> {
        let is_one_of = |names: &[&str]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name));
        let (container, host) = if is_one_of(&["abfs", "abfss", "wasb", "wasbs", "az", "azure"]) {
            let Some((container, host)) = authority.split_once('@') else {
                // A container has no dot, a host without a container has some.
                let is_container = !authority.is_empty() && !authority.contains('.');
                let place = |account| Self { account, container: Some(authority) };
                return own_account.filter(|_| is_container).map(place);
            };
            (Some(container), host)
        } else if is_one_of(&["https"]) {
            (None, authority)
        } else {
            return None;
        };
        let (account, domain) = host.split_once('.')?;
        let (service, domain) = domain.split_once('.')?;
        let is_storage = ["blob", "dfs"].iter().any(|name| service.eq_ignore_ascii_case(name))
            && domain.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("core."));
        let is_plain = container.is_none_or(|container| !container.is_empty()) && !account.is_empty();
        (is_storage && is_plain).then_some(Self { account, container })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(location: &str) -> String {
        canonical_of(None, location)
    }

    fn canonical_of(account: Option<&str>, location: &str) -> String {
        let mut out = Vec::new();
        append_canonical(DataPath::parse(location), account, &mut out, |path, out| {
            out.extend_from_slice(path);
        });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn all_forms_of_azure_that_name_an_account_are_one() {
        for location in [
            "abfss://data@acct.dfs.core.windows.net/t/p=1/a.parquet",
            "abfs://data@acct.dfs.core.windows.net/t/p=1/a.parquet",
            "wasbs://data@acct.blob.core.windows.net/t/p=1/a.parquet",
            "wasb://data@ACCT.blob.core.windows.net/t/p=1/a.parquet",
            "https://acct.blob.core.windows.net/data/t/p=1/a.parquet",
            "az://data@acct.dfs.core.windows.net/t/p=1/a.parquet",
            "ABFSS://data@acct.DFS.CORE.usgovcloudapi.net/t/p=1/a.parquet",
            "HTTPS://acct.dfs.core.chinacloudapi.cn/data/t/p=1/a.parquet",
        ] {
            assert_eq!(canonical(location), "az:acct/data/t/p=1/a.parquet", "{location}");
        }
    }

    #[test]
    fn a_form_of_azure_without_an_account_has_that_of_the_root() {
        for location in ["az://data/t", "abfss://data/t", "ABFS://data/t", "wasbs://data/t", "azure://data/t"]
        {
            assert_eq!(canonical_of(Some("acct"), location), "az:acct/data/t", "{location}");
        }
        for location in ["az://acct.dfs.core.windows.net/t", "abfss:///t", "https://data/t", "gs://data/t"] {
            assert_eq!(canonical_of(Some("acct"), location), location);
        }
        let named = "wasbs://data@other.blob.core.windows.net/t";
        assert_eq!(canonical_of(Some("acct"), named), "az:other/data/t");
    }

    #[test]
    fn other_authorities_are_no_accounts() {
        for location in [
            "abfss://data/t",
            "abfss://@acct.dfs.core.windows.net/t",
            "abfss://data@acct/t",
            "abfss://data@.dfs.core.windows.net/t",
            "https://acct.blob.example.com/data/t",
            "https://blob.core.windows.net/data/t",
            "az://data/t",
        ] {
            assert_eq!(canonical(location), location);
        }
        assert_eq!(canonical("S3A://bucket/t"), "s3://bucket/t");
        assert_eq!(canonical("GS://bucket/t"), "gs://bucket/t");
    }
}
