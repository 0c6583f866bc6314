"""One serving process: the request pipeline and everything with its lifetime.

In: a configuration file and either a host and port or a worker's slot. Out: it serves until SIGTERM or
SIGINT, or until its supervisor ends, and then drains: readiness fails first, and running streams finish
within `drainSeconds`. SIGHUP and a changed file replace everything that a reload may replace, as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import count
from pathlib import Path

from gateway.app import create_app
from gateway.authentication.credential_table import CredentialTable, changed_recipients
from gateway.catalog.catalog import Catalog
from gateway.catalog.conflicts import LeftOut
from gateway.catalog.discovered import NOTHING_DISCOVERED, Discovered, with_discovered
from gateway.catalog.stored_shares import StoredShares, WithStored, with_stored
from gateway.config import Config, Source
from gateway.config.file_stamps import stamp
from gateway.config.recipients import EVERY_SHARE
from gateway.console.inspection import Inspector
from gateway.governance.credential_store import CredentialStore
from gateway.limits.control_groups import cpus
from gateway.limits.process_memory import bound_heaps, private_bytes, resident_bytes
from gateway.limits.replica_rank import ReplicaRank, replica_id
from gateway.limits.shared_memory import SharedLimits
from gateway.server.accepted_config import accepted
from gateway.server.memory_watch import MemoryWatch
from gateway.server.reload import Reloader
from gateway.server.start import Start
from gateway.server.tls import files_of, listener_context, renew
from gateway.server.worker_secrets import WorkerSecrets
from gateway.state import GatewayState
from gateway.tables.native import cache_directory_counts, cache_used_bytes, configure, log_faults
from gateway.tables.registry import ServedTables
from gateway.tables.runtime import configure_cache_directory, release_memory
from gateway.telemetry.activity import Activity
from gateway.telemetry.audit import open_audit
from gateway.telemetry.log_output import log_counts
from gateway.telemetry.metrics import LatestValues, Metrics, outcome_of, probes
from gateway.web.pipeline import Middleware
from gateway.web.recorder import audit_counter, events_counter
from gateway.web.request_limits import RequestLimits, cache_of_worker
from gateway.web.strangers import Strangers

log = logging.getLogger("gateway.serving")

CLOSE_SECONDS = 1.0
"""Minimum time for the last audit records, and for the last spans of traces."""
HEAPS_BESIDE_THE_POOLS = 2
"""For the event loop and for the threads that read logs; each native thread has its own."""
PROBES_OF_EXPIRIES = 10
"""Number of measurements of the process for each check of the ends of tokens."""
LOGGED_ENTRIES = 20
"""Maximum number of log lines for each change of the database."""
WORTH_RETURNING_BYTES = 2 * 1024 * 1024
RETURN_SECONDS = 10.0
"""Between two attempts to return memory that only connections have freed."""


class ServerProcess:
    """Everything with the lifetime of the process, and how a new configuration takes effect."""

    def __init__(
        self,
        start: Start,
        secrets: WorkerSecrets,
        *,
        workers: int,
        now_ms: Callable[[], int],
        shared_limits: SharedLimits | None = None,
        reports_expiries: bool = True,
    ) -> None:
        """`shared_limits`: those of all workers; a process that serves alone needs none.

        `reports_expiries`: one of several workers reports the ends of tokens, which all of them know.
        """
        config, read = start.config, start.read
        # The certificates are read below; later changes are noticed.
        self._read = (*read, *config.secret_stamp, *stamp(files_of(config.ssl))) if read else ()
        self._path = start.path
        self._workers = workers
        self._reports_expiries = reports_expiries
        self._now_ms = now_ms
        self.metrics = metrics = Metrics()
        self._storage_calls = cache(
            lambda storage, outcome: metrics.tally(metrics.storage_calls.labels(storage, outcome))
        )
        self._storage_seconds = cache(
            lambda storage: metrics.timings(metrics.storage_seconds.labels(storage))
        )
        # The supervisor has checked both: a worker that starts again serves without them, as running ones do.
        is_alone = workers == 1
        self.audit = open_audit(config, must_open=is_alone)
        self._left_out: tuple[LeftOut, ...] = ()
        self._resident_after_return_bytes, self._return_at = 0, 0.0
        self._returning: asyncio.Future[None] | None = None
        caches = config.gateway.cache
        bound_heaps((caches.threads or cpus()) + HEAPS_BESIDE_THE_POOLS)
        configure(threads=caches.threads, cache_bytes=cache_of_worker(config, workers))
        try:
            configure_cache_directory(caches.directory, disk_bytes=caches.disk_bytes)
        except OSError as reason:
            if is_alone:
                raise
            log.error("%s; this worker keeps columns in memory", reason)  # noqa: TRY400 - the reason says all
        self.tls = listener_context(config.ssl, config.host, secrets.certificate)
        self.credential_store = CredentialStore(
            config,
            self._apply_credentials,
            self.metrics,
            now_ms,
            must_exist=secrets.has_database,
            take_shares=self.take_shares,
            replica_id=replica_id(secrets.token_secret),
            rank_changed=self._apply_share,
        )
        activity = Activity()
        middleware, self._end_traces = _tracing(config)
        self.pipeline = create_app(
            config,
            now_ms=now_ms,
            workers=workers,
            metrics=self.metrics,
            audit=self.audit,
            middleware=middleware,
            token_secret=secrets.token_secret,
            shared_limits=shared_limits,
            # The console shows it, on the admin listener.
            activity=activity if config.gateway.admin is not None else None,
            had_database=lambda: self.credential_store.had_database,
        )
        self.inspector = Inspector(lambda: self.pipeline.state, activity, now_ms=now_ms)
        self._served: _Served | None = None
        self._apply_credentials(self.credential_store.table(config))
        self.pipeline.end_outdated = self.credential_store.end_outdated
        self._apply_share(self.credential_store.replica_rank)
        self.metrics.config_loaded.set(now_ms() / 1000)
        self._discovered, self._shares = NOTHING_DISCOVERED, self.credential_store.shares
        if self._shares or any(True for _ in config.sources):
            self._serve(_served(config, self._shares, self._discovered))
        self.on_reload: Callable[[Config], None] = lambda _config: None
        """Called with each configuration that takes effect; it must not raise."""
        self.strangers: Strangers | None = None
        """Connections of the listener without an authenticated request, once it listens."""
        self.end_seconds: float | None = None
        """When the process has to have ended, by the monotonic clock."""
        self.reloader = Reloader(self.files, self._load, self._apply, outcome=self._record_reload)

    @property
    def sources(self) -> Iterator[Source]:
        """The places where tables are discovered, of the configuration and of the database's shares."""
        whole = self.config if self._served is None else self._served.whole.config
        return whole.sources

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.pipeline.config

    def files(self) -> list[Path]:
        """Return the files of the configuration, whose changes cause a reload."""
        return [self._path, *self.config.secret_files, *files_of(self.config.ssl)]

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Probe the process and follow the database and the files for as long as the context stack."""
        async with AsyncExitStack() as stack:
            stack.callback(self._close_tables)
            await stack.enter_async_context(probes(self.metrics, resident_bytes, self._probe()))
            await stack.enter_async_context(self.credential_store.watching(lambda: self.config))
            await stack.enter_async_context(self.reloader.watching(self._read))
            yield
        if self.audit is not None:
            await asyncio.to_thread(self.audit.close, timeout_seconds=self._closing_seconds)
        await asyncio.to_thread(self._end_traces, self._closing_seconds)

    @property
    def _closing_seconds(self) -> float:
        left = CLOSE_SECONDS if self.end_seconds is None else self.end_seconds - time.monotonic()
        return max(CLOSE_SECONDS, left)

    def _close_tables(self) -> None:
        # The current tables: a reload replaces them.
        self.pipeline.state.vendor.close()
        self.pipeline.state.tables.close()

    def _probe(self) -> Callable[[], None]:
        count_audit = audit_counter(self.metrics, self.audit) if self.audit else lambda: None
        log_lines = log_counts()
        count_log_lines = events_counter(
            self.metrics.log_lines, lambda: asdict(log_lines).items() if log_lines else ()
        )
        watch = MemoryWatch(self.metrics)
        count_cache_files = events_counter(self.metrics.cache_files, cache_directory_counts)
        count_strangers = events_counter(
            self.metrics.closed_strangers, lambda: () if self.strangers is None else self.strangers.counts()
        )
        count_log_faults = events_counter(self.metrics.log_faults, log_faults)
        breakers = LatestValues(self.metrics.storage_open)
        expiries = LatestValues(self.metrics.credentials_expiry)
        key_ages = LatestValues(self.metrics.jwks_age)
        token_ends, looks = LatestValues(self.metrics.token_expiry), count()

        def probe() -> None:
            count_audit()
            count_log_lines()
            self.pipeline.recorder.record_begun(is_on_record=self.pipeline.audits_first)
            self._return_memory()
            watch.look(self.pipeline.limits.memory, self.pipeline.state.tables)
            self.metrics.cache_bytes.set(cache_used_bytes())
            count_cache_files()
            if self.strangers is not None:
                self.metrics.strangers.set(len(self.strangers))
            count_strangers()
            count_log_faults()
            storages = self.pipeline.state.tables.storages
            storages.renew_due()
            breakers.set(dict(storages.breakers()))
            key_ages.set(self.pipeline.tokens.federation.ages_seconds(self.config))
            # The ends of thousands of tokens are compared in every tenth probe only.
            if self._reports_expiries and next(looks) % PROBES_OF_EXPIRIES == 0:
                token_ends.set(self.credential_store.expiries.soonest())
            expiries.set({storage: expires.timestamp() for storage, expires in storages.expiries()})

        return probe

    def _return_memory(self) -> None:
        # Without this the process keeps the size of its highest load. What connections hold is free once they
        # are closed, which is no growth: so it is tried again every few seconds.
        now = time.monotonic()
        if self.pipeline.limits.memory.used_bytes:
            return
        # Small amounts are not worth the time.
        has_grown = private_bytes() > self._resident_after_return_bytes + WORTH_RETURNING_BYTES
        if has_grown or now >= self._return_at:
            self._return_at = now + RETURN_SECONDS
            self._returning = asyncio.get_running_loop().run_in_executor(None, self._release_memory)

    def _release_memory(self) -> None:
        release_memory(hot=False)
        self._resident_after_return_bytes = private_bytes()

    def _apply_credentials(self, credentials: CredentialTable) -> None:
        self._replace_state(replace(self.pipeline.state, credentials=credentials))

    def _apply_share(self, share: ReplicaRank) -> None:
        limits = self.pipeline.limits
        self.pipeline.limits = RequestLimits.of(
            self.config, workers=self._workers, replica=share, previous=limits
        )

    def _replace_state(self, state: GatewayState) -> None:
        if self._served is not None:
            have_ended = self.credential_store.have_shares_ended
            state = replace(state, catalog=self._served.of_file if have_ended else self._served.catalog)
        state.tables.storages.observe_by(self._observe_storage)
        changed = changed_recipients(self.pipeline.state.credentials, state.credentials)
        # Also of the vendor that is replaced: it may have running calls, and both share the cache.
        for vendor in (self.pipeline.state.vendor, state.vendor):
            vendor.forget(changed)
        self.pipeline.state = state

    def _observe_storage(self, storage: str, outcome: str, seconds: float) -> None:
        self._storage_calls(storage, outcome).count += 1
        if outcome != "refused":
            self._storage_seconds(storage).add(seconds)

    def _load(self) -> Config:
        return accepted(self._path, self.config, workers=self._workers)

    async def take_discovered(self, discovered: Discovered) -> None:
        """Serve the discovered tables, in place of the previous ones."""
        self._discovered = discovered
        await self._serve_latest()

    async def take_shares(self, shares: StoredShares) -> None:
        """Serve the shares of the database, in place of the previous ones."""
        if shares is self._shares:
            return
        before, self._shares = self._shares, shares
        try:
            await self._serve_latest()
        except BaseException:
            # The next call tries again.
            self._shares = before
            raise
        log.info("the shares of the database have changed")

    async def _serve_latest(self) -> None:
        """Serve the shares of the configuration, the database and the discovery as they are."""
        while True:
            config, shares, discovered = self.config, self._shares, self._discovered
            served = await asyncio.to_thread(_served, config, shares, discovered, self._served)
            # Each may have changed while the others were read.
            is_current = shares is self._shares and discovered is self._discovered
            if is_current and config is self.config:
                self._serve(served)
                return

    def _serve(self, served: _Served) -> None:
        self._served = served
        self._report_left_out(served.whole.left_out)
        self._replace_state(self.pipeline.state.with_catalog(served.catalog, served.tables))

    def _report_left_out(self, left_out: tuple[LeftOut, ...]) -> None:
        """Count and log stored entries that are not shared."""
        self.metrics.stored_left_out.set(len(left_out))
        known = frozenset(self._left_out)
        for entry in [entry for entry in left_out if entry not in known][:LOGGED_ENTRIES]:
            log.warning("%s is stored and not shared: %s", ascii(entry.name), entry.reason)
        self._left_out = left_out

    async def _apply(self, loaded: Config) -> None:
        shares, discovered = self._shares, self._discovered
        served = await asyncio.to_thread(_served, loaded, shares, discovered)
        # It keeps the credentials in force for now; new ones are made on a thread, below.
        state = GatewayState.of(
            loaded,
            now_ms=self._now_ms,
            previous=self.pipeline.state,
            catalog=served.catalog,
            credentials=self.pipeline.state.credentials,
        )
        if self.tls is not None and loaded.ssl is not None:
            await asyncio.to_thread(renew, self.tls, loaded.ssl)
        credentials = await self.credential_store.latest_table(loaded)
        while shares is not self._shares or discovered is not self._discovered:
            # Grants of a later reading are for its shares.
            shares, discovered = self._shares, self._discovered
            served = await asyncio.to_thread(_served, loaded, shares, discovered, served)
            state = state.with_catalog(served.catalog, served.tables)
            credentials = await self.credential_store.latest_table(loaded)
        # From here on nothing can fail or suspend: the new state takes effect as a whole.
        self._served = served
        self._replace_state(replace(state, credentials=credentials))
        self._apply_share(self.credential_store.replica_rank)
        self.on_reload(loaded)
        self._report_left_out(served.whole.left_out)

    def _record_reload(self, refused: str | None) -> None:
        self.metrics.reloads.labels(outcome_of(refused)).inc()
        self.inspector.reloaded(refused)
        if refused is None:
            self.metrics.config_loaded.set(self._now_ms() / 1000)


@dataclass(frozen=True, slots=True)
class _Served:
    """What is served.

    Attributes:
        whole: the shares of the file and the database, and the stored entries that are left out.
        catalog: the catalog.
        of_file: the catalog when nobody knows which shares the database has.
        tables: what its tables are found by.

    """

    whole: WithStored
    catalog: Catalog
    of_file: Catalog
    tables: ServedTables


def _served(
    config: Config, stored: StoredShares, discovered: Discovered, previous: _Served | None = None
) -> _Served:
    """Return the catalog of a configuration, the database and the discovery. Slow for many tables.

    Shares that are as in `previous` are not made again.
    """
    whole = with_stored(config, stored, None if previous is None else previous.whole)
    found = with_discovered(whole.config, discovered)
    catalog = of_file = Catalog.of(
        found.shares, None if previous is None else previous.catalog, found.unsearched
    )
    if stored:
        unknown = {*found.unsearched, (EVERY_SHARE, None)}
        of_file = Catalog.of(found.shares[: len(config.shares)], catalog, unknown)
    return _Served(whole, catalog, of_file, ServedTables.of(config, catalog))


def _tracing(config: Config) -> tuple[Middleware | None, Callable[[float], None]]:
    """Return what traces requests, and what sends the last spans within a time."""
    if config.gateway.tracing is None:
        return None, lambda _seconds: None
    # The extra is needed for tracing only.
    from gateway.web.tracing import end, provider, tracing  # noqa: PLC0415

    tracers = provider(config.gateway.tracing)
    return tracing(tracers), partial(end, tracers)
