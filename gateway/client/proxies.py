"""The proxies of the environment, without urllib3: its import takes an event loop 60 ms."""

from urllib.parse import SplitResult
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]


def proxy_of_environment(parts: SplitResult) -> str | None:
    """Return the proxy that the environment names for a URL."""
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    # NO_PROXY has addresses of IPv6 with brackets or without.
    port = f":{parts.port}" if parts.port else ""
    hosts = (f"{parts.hostname}{port}", parts.netloc.rpartition("@")[2])
    if not proxy or any(proxy_bypass_environment(host, proxies) for host in hosts):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
