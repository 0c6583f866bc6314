"""The identity of an entry on Google Cloud: an HMAC key, a file with credentials, or the metadata server.

In: the entry and the environment. Out: credentials with their end. google-auth requests the tokens; it is
loaded by the first request, on its thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.file_stamps import FileStamp, file_stamp
from gateway.config.secret import Secret
from gateway.config.storages.gcs import GcsEntry, google_credentials
from gateway.paths import exists
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.gcs.credentials import GcsCredentials

if TYPE_CHECKING:
    from gateway.storage.gcs.tokens import Tokens

NEEDS_EXTRA = "identities of Google need the extra `gcp`: pip install 'delta-sharing-gateway[gcp]'"


class GcsIdentity:
    """Requests the credentials of an entry. Not thread-safe."""

    def __init__(
        self, entry: GcsEntry, environment: Mapping[str, str], *, for_exchange: bool = False
    ) -> None:
        """`for_exchange`: the token can be exchanged for one with an access boundary."""
        self._for_exchange = for_exchange
        self._entry = entry
        self._environment = environment
        self._tokens: Tokens | None = None
        self._stamp: FileStamp | None = None

    def request(self) -> GcsCredentials:
        """Return credentials. Blocks. Raises CredentialsUnavailable."""
        entry = self._entry
        if entry.access_key_id and entry.secret_access_key:
            return GcsCredentials(
                access_id=entry.access_key_id,
                secret=entry.secret_access_key,
                source="the HMAC key of the configuration",
            )
        file = self._file()
        stamp = file_stamp(file) if file is not None else None
        if self._tokens is None or (stamp != self._stamp and stamp is not None):
            self._tokens, self._stamp = self._read(file), stamp
        return self._credentials(self._tokens, file)

    def _credentials(self, tokens: Tokens, file: Path | None) -> GcsCredentials:
        token, expires = tokens.token()
        signing = None if self._for_exchange else tokens.signing_token()
        if signing is not None:
            # The metadata server gives a token that it has given before, until its last minutes.
            expires = min(expires, signing[1])
        return GcsCredentials(
            token=Secret(token),
            email=tokens.email,
            private_key=Secret(tokens.private_key) if tokens.private_key else None,
            signing_token=Secret(signing[0]) if signing is not None else None,
            iam_endpoint=tokens.iam_endpoint,
            expires=datetime.fromtimestamp(expires, UTC),
            file=file,
            source=tokens.source,
        )

    def _file(self) -> Path | None:
        """Return the file with credentials: of the entry, of the environment, or of the CLI `gcloud`."""
        if self._entry.credentials_file:
            return self._entry.credentials_file
        named = self._environment.get("GOOGLE_APPLICATION_CREDENTIALS")
        if named:
            return Path(named)
        directory = self._environment.get("CLOUDSDK_CONFIG") or str(
            Path(self._environment.get("HOME", "/nonexistent"), ".config/gcloud")
        )
        usual = Path(directory, "application_default_credentials.json")
        return usual if exists(usual) else None

    def _read(self, file: Path | None) -> Tokens:
        try:
            from gateway.storage.gcs.tokens import of_file, of_metadata_server  # noqa: PLC0415
        except ImportError:
            raise CredentialsUnavailable(NEEDS_EXTRA, lasting=True) from None

        try:
            tokens = of_metadata_server() if file is None else of_file(google_credentials(file), str(file))
        except ValueError as reason:
            raise CredentialsUnavailable(str(reason), lasting=True) from None
        if self._for_exchange:
            tokens = tokens.for_exchange()
        impersonate = self._entry.impersonate
        return tokens if impersonate is None else tokens.impersonating(impersonate)
