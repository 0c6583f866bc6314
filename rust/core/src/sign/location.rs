//! The canonical form of an absolute location in a log or in the configuration.
//!
//! `s3a:` and `s3n:` become `s3:`; the forms of Azure become `az:account.core.windows.net/container/key`, with the domain
//! of a cloud, because each has accounts of its own; [`DataPath`] recognises local files. A form of Azure without an account
//! has that of the table's own root.

use crate::log_path::DataPath;

/// Appends the canonical form of a location, with its path written by `append_path`. `account` is that of locations of
/// Azure that name none, with its domain: `account.core.windows.net`.
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
                out.extend_from_slice(AZURE);
                for (part, end) in [(place.account, b'.'), (place.domain, b'/')] {
                    out.extend(part.bytes().map(|byte| byte.to_ascii_lowercase()));
                    out.push(end);
                }
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

/// Returns the account, with its domain, of a canonical location of Azure.
pub(super) fn account_of(canonical: &[u8]) -> Option<&str> {
    let host = canonical.strip_prefix(AZURE)?.split(|byte| *byte == b'/').next()?;
    std::str::from_utf8(host).ok().filter(|host| !host.is_empty())
}

/// Begins canonical locations of Azure.
const AZURE: &[u8] = b"az:";

/// The account and the container in the authority of a location.
struct AzurePlace<'a> {
    account: &'a str,
    /// `core.windows.net`
    domain: &'a str,
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
                let (account, domain) = own_account.filter(|_| is_container)?.split_once('.')?;
                return Some(Self { account, domain, container: Some(authority) });
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
        (is_storage && is_plain).then_some(Self { account, domain, container })
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
    fn all_forms_of_azure_that_name_an_account_are_one_in_each_cloud() {
        for location in [
            "abfss://data@acct.dfs.core.windows.net/t/p=1/a.parquet",
            "abfs://data@acct.dfs.core.windows.net/t/p=1/a.parquet",
            "wasbs://data@acct.blob.core.windows.net/t/p=1/a.parquet",
            "wasb://data@ACCT.blob.core.windows.net/t/p=1/a.parquet",
            "https://acct.blob.core.windows.net/data/t/p=1/a.parquet",
            "az://data@acct.dfs.core.windows.net/t/p=1/a.parquet",
            "ABFSS://data@acct.DFS.CORE.Windows.net/t/p=1/a.parquet",
        ] {
            assert_eq!(canonical(location), "az:acct.core.windows.net/data/t/p=1/a.parquet", "{location}");
        }
        for location in [
            "abfss://data@acct.dfs.core.chinacloudapi.cn/t",
            "HTTPS://acct.blob.core.chinacloudapi.cn/data/t",
        ] {
            assert_eq!(canonical(location), "az:acct.core.chinacloudapi.cn/data/t", "{location}");
        }
    }

    #[test]
    fn a_form_of_azure_without_an_account_has_that_of_the_root() {
        for location in ["az://data/t", "abfss://data/t", "ABFS://data/t", "wasbs://data/t", "azure://data/t"]
        {
            let found = canonical_of(Some("acct.core.windows.net"), location);
            assert_eq!(found, "az:acct.core.windows.net/data/t", "{location}");
            assert_eq!(account_of(found.as_bytes()), Some("acct.core.windows.net"));
        }
        for location in ["az://acct.dfs.core.windows.net/t", "abfss:///t", "https://data/t", "gs://data/t"] {
            assert_eq!(canonical_of(Some("acct.core.windows.net"), location), location);
            assert_eq!(account_of(location.as_bytes()), None);
        }
        let named = "wasbs://data@other.blob.core.windows.net/t";
        let found = canonical_of(Some("acct.core.chinacloudapi.cn"), named);
        assert_eq!(found, "az:other.core.windows.net/data/t");
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
