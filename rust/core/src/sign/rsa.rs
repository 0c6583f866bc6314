//! Signatures by RSA: PKCS #1 v1.5 with SHA-256.

use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer};

use crate::hashing::{hex, write_hex};
use crate::{Error, Result};

#[derive(Clone)]
pub(super) struct RsaKey(Arc<RsaKeyPair>);

impl RsaKey {
    /// Reads a PEM file with a key in PKCS #8 or PKCS #1.
    pub(super) fn of_pem(pem: &str) -> Result<Self> {
        let invalid = || Error::InvalidArgument("the private key is no RSA key in PEM form".to_owned());
        let pair = match PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| invalid())? {
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(PrivatePkcs1KeyDer::secret_pkcs1_der(&key)),
            _ => return Err(invalid()),
        };
        Ok(Self(Arc::new(pair.map_err(|_| invalid())?)))
    }
}

/// Signs strings that end in the hex digits of a digest.
pub(super) struct RsaSignature {
    key: RsaKey,
    /// The string before the digits.
    head: Vec<u8>,
    random: SystemRandom,
}

impl RsaSignature {
    pub(super) fn new(key: RsaKey, head: Vec<u8>) -> Self {
        Self { key, head, random: SystemRandom::new() }
    }

    /// Returns the length of a signature in hex digits.
    pub(super) fn digits(&self) -> usize {
        2 * self.key.0.public().modulus_len()
    }

    /// Writes the signature of a string with the digest to `out`, which has its length. An internal fault of the
    /// signature, which its verification finds, leaves the placeholder: the store refuses the URL.
    pub(super) fn write(&self, digest: &[u8; 32], out: &mut [u8]) {
        let text = [self.head.as_slice(), hex(digest).as_flattened()].concat();
        let mut signature = vec![0; self.key.0.public().modulus_len()];
        if self.key.0.sign(&RSA_PKCS1_SHA256, &self.random, &text, &mut signature).is_ok() {
            write_hex(&signature, out);
        }
    }
}
