"""The services on a machine of AWS that give it credentials: of a container and of an instance.

Their requests never go through a proxy. The text of an answer is never in an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from botocore.exceptions import BotoCoreError, MetadataRetrievalError
from botocore.httpsession import URLLib3Session
from botocore.utils import ContainerMetadataFetcher, InstanceMetadataFetcher, is_valid_uri

from gateway.storage.aws.clients import ERRORS, keys_of, unavailable
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.credentials import CredentialsUnavailable

# The instance's service answers within milliseconds, or does not exist.
INSTANCE_TIMEOUT_SECONDS = 1.0
CONTAINER_TIMEOUT_SECONDS = 2.0
CONTAINER_SERVICE = "the container's credentials service"
INSTANCE_SERVICE = "the instance's metadata service"


class InstanceService(InstanceMetadataFetcher):  # type: ignore[misc]
    """Reads the role of the instance by IMDSv2."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(
            timeout=INSTANCE_TIMEOUT_SECONDS,
            num_attempts=1,
            env=dict(environment),
            config={
                "ec2_metadata_service_endpoint": environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
                "ec2_metadata_service_endpoint_mode": environment.get(
                    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", ""
                ).lower(),
                "ec2_metadata_v1_disabled": True,
            },
        )
        # botocore sends these requests to the proxy of the environment.
        self._session = URLLib3Session(timeout=INSTANCE_TIMEOUT_SECONDS)

    def _evaluate_expiration(self, credentials: Any) -> None:
        """Keep the true end of keys; botocore claims a later one for keys that are about to end."""

    def _is_non_ok_response(self, response: Any) -> bool:
        if response.status_code not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            raise CredentialsUnavailable(f"{INSTANCE_SERVICE} answers {response.status_code}")
        return bool(response.status_code != HTTPStatus.OK)


def instance_credentials(environment: Mapping[str, str]) -> S3Credentials:
    """Return the credentials of the instance's role. Blocks. Raises CredentialsUnavailable."""
    endpoint = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    if endpoint is not None and not (is_valid_uri(endpoint) and endpoint.startswith(("http://", "https://"))):
        raise CredentialsUnavailable(f"the address of {INSTANCE_SERVICE} is not a URL")
    try:
        role = InstanceService(environment).retrieve_iam_role_credentials()
    except MetadataRetrievalError:
        raise CredentialsUnavailable(f"{INSTANCE_SERVICE} cannot be reached, or gives no session") from None
    except (BotoCoreError, OSError, ValueError) as error:
        raise unavailable(INSTANCE_SERVICE, error) from None
    if not role:
        raise CredentialsUnavailable("the instance has no role", lasting=True)
    answer = {
        "AccessKeyId": role["access_key"],
        "SecretAccessKey": role["secret_key"],
        "Token": role["token"],
        "Expiration": role["expiry_time"],
    }
    return keys_of(answer, f"the role {role['role_name']} of the instance")


def container_credentials(environment: Mapping[str, str], token: str | None) -> S3Credentials:
    """Return the credentials of the container's role. Blocks. Raises CredentialsUnavailable."""
    fetcher = container_fetcher()
    relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    url = fetcher.full_url(relative) if relative else environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    headers = {"Authorization": token} if token else None
    try:
        return keys_of(fetcher.retrieve_full_uri(url, headers=headers), "the role of the container")
    except MetadataRetrievalError as error:
        # The rest of the text has the body of the answer.
        status = re.search(r"non 200 response ([0-9]{3})", str(error))
        reason = f"answers {status[1]}" if status else "cannot be reached, or did not answer with JSON"
        raise CredentialsUnavailable(f"{CONTAINER_SERVICE} {reason}") from None
    except ValueError:
        raise CredentialsUnavailable(
            f"the address of {CONTAINER_SERVICE} is not accepted, or its answer; the address is HTTPS, or on "
            "this machine"
        ) from None
    except ERRORS as error:
        raise unavailable(CONTAINER_SERVICE, error) from None


def container_fetcher() -> ContainerMetadataFetcher:
    """Return botocore's client of the container's service."""
    return ContainerMetadataFetcher(
        session=URLLib3Session(timeout=CONTAINER_TIMEOUT_SECONDS), sleep=lambda _seconds: None
    )
