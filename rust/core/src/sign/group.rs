//! URLs in an output whose signatures are pending and computed together.
//!
//! Texts that share a suffix need less hashing, and paths of one length share everything that follows them. Pending URLs
//! are therefore grouped by the length of their path; the remaining ones are signed at the end. No memory is allocated
//! per URL once the buffers fit the longest path.

use std::ops::Range;

use super::base64;
use super::remote::{Pending, Requests};
use super::template::{DIGEST_DIGITS, DIGEST_TEXT_BLOCKS, Form, PathMessage, UrlTemplate};
use crate::Result;
use crate::hashing::{Block, GROUP, SharedSuffix, hex, outer_block};

/// Number of path lengths with a group of their own. A table with more lengths has few files of each.
const LENGTHS: usize = 8;

/// Pending URLs of one template.
#[derive(Default)]
pub(super) struct Group {
    of_one_length: Vec<Waiting>,
    others: Waiting,
    steps: Steps,
}

#[derive(Default)]
struct Waiting {
    urls: [Url; GROUP],
    count: usize,
    /// The length of their paths, if equal.
    path_bytes: Option<usize>,
    /// The last blocks of the texts, computed for the first full group.
    suffix: Option<SharedSuffix>,
}

#[derive(Default)]
struct Url {
    text: PathMessage,
    signature_at: usize,
}

impl Group {
    /// Appends a URL to `out`, whose encoded path `append_path` writes. Its signature may be pending. `append_path` returns the
    /// path without its encoding, if that is in the text of the template.
    pub(super) fn append<'path>(
        &mut self,
        template: &UrlTemplate,
        out: &mut Vec<u8>,
        append_path: impl FnOnce(&mut Vec<u8>) -> Option<&'path [u8]>,
    ) {
        out.extend_from_slice(&template.head);
        let path_at = out.len();
        let decoded = append_path(out);
        let path_end = out.len();
        out.extend_from_slice(&template.tail);
        self.wait(template, out, path_at..path_end, decoded);
    }

    /// Lets the URL at the end of `out` wait for its signature. Its text has the path in `out`, or `decoded`.
    #[inline]
    fn wait(&mut self, template: &UrlTemplate, out: &mut [u8], path: Range<usize>, decoded: Option<&[u8]>) {
        let path = decoded.unwrap_or(&out[path]);
        let (waiting, steps) = self.waiting(path.len());
        let url = &mut waiting.urls[waiting.count];
        template.text.write(path, &mut url.text);
        url.signature_at = out.len() - template.signature_bytes;
        waiting.count += 1;
        if waiting.count == GROUP {
            waiting.sign_all(template, steps, out);
        }
    }

    /// Writes all pending signatures into `out`, except the signatures of a service.
    pub(super) fn sign(&mut self, template: &UrlTemplate, out: &mut [u8]) {
        let mut left = self.of_one_length.iter().chain([&self.others]).flat_map(Waiting::urls).peekable();
        while left.peek().is_some() {
            let mut some = Unsigned::default();
            while some.count < GROUP
                && let Some(url) = left.next()
            {
                some.push(url, url.text.blocks());
            }
            some.sign(template, &SharedSuffix::default(), &mut self.steps, out);
        }
        drop(left);
        for waiting in &mut self.of_one_length {
            waiting.count = 0;
        }
        self.others.count = 0;
    }

    /// Writes the signatures of a service, of all URLs that [`Self::sign`] has hashed.
    pub(super) fn sign_by_service(
        &mut self,
        template: &UrlTemplate,
        requests: &Requests,
        out: &mut [u8],
    ) -> Result<()> {
        let pending = std::mem::take(&mut self.steps.pending);
        match &template.form {
            Form::Remote(remote) if !pending.is_empty() => remote.write(&pending, requests, out),
            _ => Ok(()),
        }
    }

    /// Forgets pending URLs at and after `length` in the output.
    pub(super) fn truncate(&mut self, length: usize) {
        self.steps.pending.retain(|pending| pending.at < length);
        for waiting in self.of_one_length.iter_mut().chain([&mut self.others]) {
            while waiting.urls().last().is_some_and(|url| url.signature_at >= length) {
                waiting.count -= 1;
            }
        }
    }

    /// Returns the group of pending URLs with paths of this length.
    fn waiting(&mut self, path_bytes: usize) -> (&mut Waiting, &mut Steps) {
        let found = self.of_one_length.iter().position(|waiting| waiting.path_bytes == Some(path_bytes));
        let index = found.unwrap_or(self.of_one_length.len());
        if found.is_none() && index < LENGTHS {
            self.of_one_length.push(Waiting { path_bytes: Some(path_bytes), ..Waiting::default() });
        }
        (self.of_one_length.get_mut(index).unwrap_or(&mut self.others), &mut self.steps)
    }
}

impl Waiting {
    fn urls(&self) -> &[Url] {
        &self.urls[..self.count]
    }

    /// Signs a full group.
    fn sign_all(&mut self, template: &UrlTemplate, steps: &mut Steps, out: &mut [u8]) {
        let own_blocks = self.path_bytes.map(|path_bytes| template.text.blocks_to_path_end(path_bytes));
        let suffix =
            self.suffix.get_or_insert_with(|| SharedSuffix::of(self.urls[0].text.split_at(own_blocks).1));
        let mut all = Unsigned::default();
        for url in &self.urls[..std::mem::take(&mut self.count)] {
            all.push(url, url.text.split_at(own_blocks).0);
        }
        all.sign(template, suffix, steps, out);
    }
}

/// URLs that are signed together.
#[derive(Default)]
struct Unsigned<'url> {
    texts: [&'url [Block]; GROUP],
    signature_at: [usize; GROUP],
    count: usize,
}

impl<'url> Unsigned<'url> {
    fn push(&mut self, url: &Url, text: &'url [Block]) {
        self.texts[self.count] = text;
        self.signature_at[self.count] = url.signature_at;
        self.count += 1;
    }

    fn sign(&self, template: &UrlTemplate, suffix: &SharedSuffix, steps: &mut Steps, out: &mut [u8]) {
        let texts = &self.texts[..self.count];
        let signatures = match &template.form {
            Form::Rsa(_) | Form::Remote(_) => Steps::digests(template, texts, suffix),
            Form::Hex | Form::Base64 => steps.signatures(template, texts, suffix),
        };
        let places = self.signature_at.iter().zip(&signatures[..self.count]);
        match &template.form {
            Form::Hex => write_each(places, out, DIGEST_DIGITS, |signature, text| {
                text.copy_from_slice(hex(signature).as_flattened());
            }),
            Form::Base64 => write_each(places, out, template.signature_bytes, base64::write),
            Form::Rsa(rsa) => {
                write_each(places, out, template.signature_bytes, |digest, text| rsa.write(digest, text));
            }
            Form::Remote(_) => {
                steps.pending.extend(places.map(|(at, digest)| Pending { at: *at, digest: *digest }));
            }
        }
    }
}

/// Writes signatures of a length to their places in `out`.
fn write_each<'a>(
    places: impl Iterator<Item = (&'a usize, &'a [u8; 32])>,
    out: &mut [u8],
    bytes: usize,
    write: impl Fn(&[u8; 32], &mut [u8]),
) {
    for (at, signature) in places {
        if let Some(text) = out.get_mut(*at..*at + bytes) {
            write(signature, text);
        }
    }
}

/// The state between the hashes of a group.
#[derive(Default)]
struct Steps {
    /// The strings to sign.
    strings: Option<Box<[[Block; DIGEST_TEXT_BLOCKS]; GROUP]>>,
    /// The digests that a service signs.
    pending: Vec<Pending>,
}

impl Steps {
    fn digests(template: &UrlTemplate, texts: &[&[Block]], suffix: &SharedSuffix) -> [[u8; 32]; GROUP] {
        let mut digests = [[0; 32]; GROUP];
        template.engine.sha256_with_suffix(&template.text.state(), texts, suffix, &mut digests);
        digests
    }

    fn signatures(
        &mut self,
        template: &UrlTemplate,
        texts: &[&[Block]],
        suffix: &SharedSuffix,
    ) -> [[u8; 32]; GROUP] {
        let count = texts.len();
        let engine = template.engine;
        let mut digests = Self::digests(template, texts, suffix);

        if let Some(string_to_sign) = &template.string_to_sign {
            let strings = self.strings.get_or_insert_with(|| Box::new([string_to_sign.blocks; GROUP]));
            for (string, digest) in strings[..count].iter_mut().zip(&digests) {
                string_to_sign.write(digest, string);
            }
            let texts: [&[Block]; GROUP] =
                std::array::from_fn(|index| &strings[index][..string_to_sign.block_count]);
            engine.sha256(&string_to_sign.state, &texts[..count], &mut digests);
        }

        let outers: [Block; GROUP] = std::array::from_fn(|index| outer_block(&digests[index]));
        let texts: [&[Block]; GROUP] = std::array::from_fn(|index| std::slice::from_ref(&outers[index]));
        engine.sha256(&template.outer, &texts[..count], &mut digests);
        digests
    }
}
