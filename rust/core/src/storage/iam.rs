//! Signatures by the service account of a machine that has no private key: `signBlob` of Google's IAM.
//!
//! See <https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/signBlob>.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde::Deserialize;

use super::answer::{Answer, causes};
use super::credentials::checked_token;
use super::remote::install_tls_provider;
use super::runtime::{self, Semaphore, sleep};
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::percent;
use crate::sign::SigningService;
use crate::stop::Stop;

const ENDPOINT: &str = "https://iamcredentials.googleapis.com";

/// Requests of one chunk of an answer that are in flight.
const IN_FLIGHT_OF_A_CHUNK: usize = 32;
/// Requests of one service account that are in flight in the process. Another account does not wait for them.
const IN_FLIGHT_OF_AN_ACCOUNT: usize = 64;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Total time of retries of one request.
const RETRY_BUDGET: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The time until a cancelled stream ends its requests.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Maximum length of the text about a request without an answer.
const MAX_DETAIL_CHARS: usize = 500;

/// Signs as a service account. `Debug` shows no secret.
pub struct IamSigner {
    url: String,
    in_flight: Arc<Semaphore>,
    authorization: HeaderValue,
}

impl fmt::Debug for IamSigner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IamSigner").field("url", &self.url).finish_non_exhaustive()
    }
}

impl IamSigner {
    /// Signs as the service account `email` with a token that may call `signBlob` for it. `endpoint` is
    /// `http(s)://host[:port]`; `None` for Google itself. Sends no request.
    pub fn new(email: &str, access_token: &str, endpoint: Option<&str>) -> Result<Self> {
        let invalid = |reason: &str| Error::InvalidArgument(format!("the storage's {reason}"));
        let endpoint = endpoint.unwrap_or(ENDPOINT).trim_end_matches('/');
        let url = url::Url::parse(endpoint).map_err(|_| invalid("IAM endpoint is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("IAM endpoint must begin with http:// or https://"));
        }
        if !email.contains('@') {
            return Err(invalid("service account must be an e-mail address"));
        }
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", checked_token(access_token)?))
            .map_err(|_| invalid("token cannot be sent in a header"))?;
        authorization.set_sensitive(true);
        let account = percent::query_value(email);
        let url = format!("{endpoint}/v1/projects/-/serviceAccounts/{account}:signBlob");
        Ok(Self { in_flight: in_flight_of(&url), url, authorization })
    }

    async fn signature(&self, text: &[u8]) -> Result<Vec<u8>> {
        let body = format!(r#"{{"payload":"{}"}}"#, STANDARD.encode(text));
        // Without the time until other requests end.
        let mut spent = Duration::ZERO;
        let mut pause = FIRST_PAUSE;
        loop {
            let permit = self.in_flight.acquire().await.map_err(|error| unavailable(&error))?;
            let began = Instant::now();
            let result = self.request(body.clone()).await;
            drop(permit);
            spent += began.elapsed() + pause;
            match result {
                Err(Failure::Passing(_)) if spent < RETRY_BUDGET => {
                    sleep(pause).await;
                    pause *= 2;
                }
                Ok(signature) => return Ok(signature),
                Err(Failure::Passing(error) | Failure::Lasting(error)) => return Err(error),
            }
        }
    }

    async fn request(&self, body: String) -> Result<Vec<u8>, Failure> {
        let passing = |error: &reqwest::Error| Failure::Passing(unavailable(error));
        let client = client().map_err(Failure::Lasting)?;
        let request = client
            .post(&self.url)
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let mut answer = request.send().await.map_err(|error| passing(&error))?;
        let status = answer.status();
        let mut content = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| passing(&error))? {
            content.extend_from_slice(&piece);
            if content.len() > MAX_ANSWER_BYTES {
                return Err(Failure::Lasting(unexpected()));
            }
        }
        if status == StatusCode::OK {
            let signed: Signed =
                serde_json::from_slice(&content).map_err(|_| Failure::Lasting(unexpected()))?;
            return STANDARD.decode(signed.signed_blob).map_err(|_| Failure::Lasting(unexpected()));
        }
        let answer = Answer::new(status.to_string(), &String::from_utf8_lossy(&content));
        let detail = format!("signBlob of IAM {answer}");
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS => Failure::Passing(Error::StorageUnavailable { detail }),
            _ if status.is_server_error() => Failure::Passing(Error::StorageUnavailable { detail }),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
                Failure::Lasting(Error::StorageDenied { detail })
            }
            _ => Failure::Lasting(Error::StorageUnavailable { detail }),
        })
    }

    async fn signatures(&self, texts: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        futures::stream::iter(texts.iter().map(|text| self.signature(text)))
            .buffered(IN_FLIGHT_OF_A_CHUNK)
            .try_collect()
            .await
    }
}

impl SigningService for IamSigner {
    fn sign(&self, texts: Vec<Vec<u8>>, stop: &Stop) -> Result<Vec<Vec<u8>>> {
        runtime::block_on(async {
            let stopped = async {
                loop {
                    if let Err(error) = stop.check() {
                        return error;
                    }
                    sleep(STOP_INTERVAL).await;
                }
            };
            let (signatures, stopped) = (std::pin::pin!(self.signatures(&texts)), std::pin::pin!(stopped));
            match futures::future::select(signatures, stopped).await {
                futures::future::Either::Left((signatures, _)) => signatures,
                futures::future::Either::Right((error, _)) => Err(error),
            }
        })?
    }
}

#[derive(Deserialize)]
struct Signed {
    #[serde(rename = "signedBlob")]
    signed_blob: String,
}

enum Failure {
    /// Another attempt may succeed.
    Passing(Error),
    Lasting(Error),
}

/// Returns the permits of a service account, which all its signers share.
fn in_flight_of(url: &str) -> Arc<Semaphore> {
    static ACCOUNTS: Mutex<BTreeMap<String, Weak<Semaphore>>> = Mutex::new(BTreeMap::new());
    let mut accounts = lock(&ACCOUNTS);
    if let Some(known) = accounts.get(url).and_then(Weak::upgrade) {
        return known;
    }
    // The map holds the accounts of signers that exist.
    accounts.retain(|_, permits| permits.strong_count() > 0);
    let permits = Arc::new(Semaphore::new(IN_FLIGHT_OF_AN_ACCOUNT));
    accounts.insert(url.to_owned(), Arc::downgrade(&permits));
    permits
}

fn client() -> Result<&'static Client> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    install_tls_provider();
    let client = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .redirect(Policy::none())
        .build()
        .map_err(|error| unavailable(&error))?;
    Ok(CLIENT.get_or_init(|| client))
}

fn unavailable(error: &(dyn std::error::Error + 'static)) -> Error {
    let causes = causes(error).map(|cause| format!(": {cause}"));
    let detail = format!("signBlob of IAM{}", causes.collect::<String>());
    Error::StorageUnavailable { detail: detail.chars().take(MAX_DETAIL_CHARS).collect() }
}

fn unexpected() -> Error {
    Error::StorageUnavailable { detail: "signBlob of IAM answered without a signature".into() }
}
