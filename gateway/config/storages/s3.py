"""The keys of S3 and of AWS in `gateway.storages[]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar
from urllib.parse import urlsplit

from gateway.config.checks import check_url
from gateway.config.errors import Invalid
from gateway.config.locations import Location
from gateway.config.networks import Network, parse_address
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.config.storages.entry import StorageEntry, check_access_key
from gateway.config.storages.session_policy import AWS_HOSTS, SPECIAL, partition_of, session_policy

_ROLE = ("external_id", "role_session_name", "session_seconds")
_REGION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)
_ARN = re.compile(r"[!-~]{20,2048}")
_GOOGLE_DOMAIN = "googleapis.com"


@dataclass(frozen=True, slots=True)
class S3Entry(StorageEntry):
    """A bucket of AWS or of another store of S3.

    Attributes:
        region: S3: region that requests and URLs are signed for. Without it the region of the environment.
        path_style: S3: puts the bucket in the path instead of the host name.
        dual_stack: AWS: uses the hosts that IPv6 reaches, too.
        fips: AWS: uses the hosts with FIPS 140 cryptography.
        requester_pays: AWS: requests, and those of the recipients' URLs, are charged to the identity that
            signs them.
        access_key_id: S3 and Google: access key that reads and signs; of Google an HMAC key. Without it the
            credentials of the environment.
        secret_access_key: S3 and Google: secret of the access key.
        session_token: S3: session token of temporary keys.
        session_expires: S3: ISO 8601 time at which temporary keys end. No URL claims to live longer.
        profile: AWS: profile of the shared credentials file or of AWS's configuration file, which may name a
            role, a single sign-on or a credential process.
        role_arn: AWS: role that is assumed with the credentials of this entry or of the environment.
        external_id: AWS: external id that the role's trust policy asks for.
        role_session_name: AWS: name of the role's session in the logs of the provider. Without it
            `delta-sharing-gateway`.
        session_seconds: AWS: lifetime of the role's session. Without it one hour, the most for a role that
            is assumed by another role's session.
        sts_endpoint: AWS and Google: URL of the token service; of R2, of Cloudflare's API. Without it that of
            the region or of the provider. Directory access needs it for other stores of S3.
        directory_role_arn: AWS: role whose sessions recipients of directory access get, limited to the table.
            Without it `roleArn`. Stores other than AWS accept any text in the form of an ARN.

    """

    KIND: ClassVar[str] = "s3"
    KIND_NAME: ClassVar[str] = "s3://"

    region: str | None = setting(None, identifies=False)
    path_style: bool = setting(False, identifies=False)
    dual_stack: bool = False
    fips: bool = False
    requester_pays: bool = setting(False, identifies=False)
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    session_expires: datetime | None = setting(None, protects=True)
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    role_session_name: str | None = None
    session_seconds: int | None = setting(None, minimum=900, maximum=43200)
    sts_endpoint: str | None = None
    directory_role_arn: str | None = setting(None, identifies=False)

    @property
    def directory_role(self) -> str | None:
        """Return the role whose sessions recipients of directory access get."""
        return self.directory_role_arn or self.role_arn

    @property
    def without_role(self) -> S3Entry:
        """Return the entry of the identity that assumes the role."""
        return replace(self, role_arn=None, external_id=None, role_session_name=None, session_seconds=None)

    @property
    def is_aws(self) -> bool:
        """Return whether the store and the token service belong to AWS."""
        hosts = [urlsplit(url).hostname or "" for url in (self.endpoint, self.sts_endpoint) if url]
        return all(host.endswith(AWS_HOSTS) for host in hosts)

    def comparable(self, location: Location) -> Location:
        """Return a location for comparisons: the API of S3 reaches buckets of Google, too."""
        host = (urlsplit(self.endpoint or "").hostname or "").rstrip(".")
        is_google = f".{host}".endswith(f".{_GOOGLE_DOMAIN}")
        # The bucket may be a part of the host name, which has no case.
        return replace(location, kind="gs" if is_google else "s3", bucket=location.bucket.lower())

    def policy_length(self, location: Location, networks: Sequence[Network]) -> int:
        """Return the length of the session policy of a directory; 0 where credentials have none."""
        role = self.directory_role
        if role is None:
            return 0
        partition = partition_of(role, self.region or "")
        return len(session_policy(location, networks, partition=partition, is_aws=self.is_aws))

    def _root_problem(self, location: Location) -> str | None:
        if self.directory_role is None:
            return (
                "credentials are sessions of a role; give directoryRoleArn or roleArn in gateway.storages, "
                "or cloudflareApiToken for R2"
            )
        if self.endpoint is not None and self.sts_endpoint is None and not self.is_aws:
            return (
                "its store is none of AWS, and roles are assumed at AWS without stsEndpoint; give stsEndpoint"
            )
        if location.is_access_point:
            return "a policy cannot name the alias of an access point; give the bucket itself"
        if not self.is_aws and SPECIAL.search(location.key):
            return "its path has one of * ? $, which only policies of AWS can escape; give it another path"
        return None

    def _check(self) -> None:
        check_url("sts_endpoint", self.sts_endpoint)
        check_access_key(self.access_key_id, self.secret_access_key)
        self._check_visible("access_key_id", "session_token")
        self._check_printable("secret_access_key")
        for name in ("endpoint", "public_endpoint"):
            host = urlsplit(getattr(self, name) or "").hostname or ""
            if not self.path_style and parse_address(host) is not None:
                raise Invalid(
                    name, "a bucket is no part of an IP address; give pathStyle: true or a host name"
                )
        if self.session_token is not None and self.access_key_id is None:
            raise Invalid("session_token", "a sessionToken needs accessKeyId and secretAccessKey")
        if self.session_expires is not None and self.access_key_id is None:
            raise Invalid("session_expires", "is the end of temporary keys; give accessKeyId, too")
        self._check_form("region", _REGION, "letters, digits, hyphens, dots and _, such as eu-west-1")
        if self.profile is not None and self.access_key_id is not None:
            raise Invalid("profile", "the entry has keys; give either accessKeyId or profile")
        for name in ("dual_stack", "fips"):
            if getattr(self, name) and self.endpoint is not None:
                raise Invalid(name, "chooses a host of AWS, and `endpoint` is another; give one of them")
        self._check_roles()

    def _check_roles(self) -> None:
        for name in _ROLE:
            is_of_directory_role = name == "external_id" and self.directory_role_arn is not None
            if getattr(self, name) is not None and self.role_arn is None and not is_of_directory_role:
                raise Invalid(name, "describes the session of a role; give roleArn, too")
        for name in ("role_arn", "directory_role_arn"):
            self._check_form(name, _ARN, "arn:aws:iam::123456789012:role/name")
        self._check_form("external_id", _EXTERNAL_ID, "2 to 1224 letters, digits and +=,.@:/-_")
        self._check_form("role_session_name", _SESSION_NAME, "2 to 64 letters, digits and +=,.@-_")
