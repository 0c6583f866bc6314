"""Runs a server that has started, in this process or in workers, until a signal ends it.

SIGTERM and SIGINT drain: readiness fails first, after `drainDelaySeconds` no connection is accepted, running
streams finish, and `drainSeconds` after the signal what still runs is ended. SIGHUP reloads the
configuration. With workers, this process supervises them and serves only the admin listener.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from ssl import SSLContext
from typing import Any, ParamSpec, TypeVar

from gateway.admin.administration import ReloadResult, WorkerReload
from gateway.config import Config, Ssl
from gateway.config.file_stamps import Stamp, stamp
from gateway.console import site
from gateway.discovery.directories import THREAD as DISCOVERY
from gateway.encoding import json_line
from gateway.governance.audited_database import database_problem
from gateway.governance.reading_thread import THREAD as DATABASE
from gateway.limits.drain_rate import DrainRate
from gateway.limits.shared_memory import SharedLimits
from gateway.server.accepted_config import accepted
from gateway.server.deferred_signals import ignore_hang_up
from gateway.server.discovery import DiscoveredFile, Discoverer
from gateway.server.listeners import allow_restart
from gateway.server.process import CLOSE_SECONDS, ServerProcess
from gateway.server.reload import Reloader
from gateway.server.service_manager import ServiceManager, without_service_manager
from gateway.server.slot import Slot, message_line
from gateway.server.sources import Sources
from gateway.server.start import Start
from gateway.server.supervisor import Supervisor, WorkerEvents
from gateway.server.tls import files_of, listener_context, renew
from gateway.server.worker_secrets import WorkerSecrets
from gateway.storage.calls import CALLS, DATA_FILE_THREADS
from gateway.storage.registry import Storages
from gateway.telemetry.audit import AuditLog, open_audit
from gateway.telemetry.audit_record import RELOAD, action_record, cut_by_worker
from gateway.telemetry.memory_file import memory_file
from gateway.telemetry.metrics import (
    AdminMetrics,
    DiscoveryMetrics,
    SupervisorMetrics,
    outcome_of,
    workers_page,
)
from gateway.telemetry.shared_values import write_values_to
from gateway.times import epoch_ms
from gateway.web.accepting import Site
from gateway.web.connections import UNREAD_BYTES, AppRunner, Runner
from gateway.web.request_body import BUFFERED_BYTES
from gateway.web.stream import LAST_LINE_SECONDS

log = logging.getLogger("gateway.serving")

P = ParamSpec("P")
R = TypeVar("R")
KILL_MARGIN_SECONDS = 5.0
LINGERING_SECONDS = 2.0
LEAVE_SECONDS = 1.0
CUT_SECONDS = 2.0
"""The last part of a drain, in which requests that still run are ended and recorded."""
HELD_PART = 16
"""Of the memory: that is what connections may hold beside admitted answers."""
ADMIN_DRAIN_SECONDS = 1.0
THREADS = 64
WORK = "work"
COLLECT_AFTER_OBJECTS = 10_000
"""A garbage collection stops all answers, for 3 ms with this number of objects."""
MAX_USER_TIMEOUT_MS = 2**31 - 1


async def serve(start: Start) -> None:
    """Serve until a signal. Raises OSError and StartFailed."""
    threads = _Threads(THREADS, thread_name_prefix=WORK)
    asyncio.get_running_loop().set_default_executor(threads)
    if start.slot is None and len(start.listeners) > 1:
        await _supervise(start)
    elif start.slot is not None:
        await _serve_slot(start, start.slot)
    else:
        await _serve_alone(start)
    threads.shutdown(wait=False, cancel_futures=True)
    _exit_past_hanging_threads()


class _Threads(ThreadPoolExecutor):
    """The event loop's default threads, for revocations, reloads and all else that waits for no storage.

    Data files are read by the threads of their storage: when all of these hang, nothing else hangs.
    """

    def submit(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call on a thread."""
        threads = DATA_FILE_THREADS.get()
        if threads is not None:
            return threads.submit(call, *args, **kwargs)
        return super().submit(call, *args, **kwargs)


def _exit_past_hanging_threads() -> None:
    """End the process if threads wait for a storage that hangs: the interpreter would wait for them."""
    end = time.monotonic() + LEAVE_SECONDS
    while any(thread.name.startswith((WORK, CALLS, DATABASE, DISCOVERY)) for thread in threading.enumerate()):
        if time.monotonic() > end:
            log.warning("a storage hangs; the server ends without waiting for it")
            logging.shutdown()
            os._exit(0)
        time.sleep(LEAVE_SECONDS / 50)


def _log_addresses(start: Start) -> None:
    """Log the address of each listener."""
    admin = start.admin_listener
    listeners = [("recipients", start.listeners[0])] + (
        [("the admin API and console", admin)] if admin else []
    )
    for users, listener in listeners:
        host, port = listener.getsockname()[:2]
        log.info("listening on %s for %s", f"[{host}]:{port}" if ":" in host else f"{host}:{port}", users)


async def _serve_alone(start: Start) -> None:
    config, (listener,) = start.config, start.listeners
    process = ServerProcess(start, WorkerSecrets.made(config), workers=1, now_ms=epoch_ms)
    stop, manager = _stop_signals(), ServiceManager.of_environment(os.environ)
    process.reloader.within = manager.reloading
    process.reloader.noticed = _recording(process.audit)

    async def reload() -> ReloadResult:
        refused = await process.reloader.reload()
        return ReloadResult(refused, [] if refused else [WorkerReload(0, os.getpid(), None)])

    async def ask(question: Any, *, one: bool = False, seconds: float) -> list[Any]:  # noqa: ARG001 - there is one process
        return [await process.inspector.answer(question)]

    administration = _administration(
        config,
        start.admin_listener,
        lambda: process.config,
        audit=process.audit,
        page=process.metrics.page,
        reload=reload,
        had_database=lambda: process.credential_store.had_database,
        metrics=AdminMetrics(process.metrics.registry),
        ask=ask,
        workers=1,
    )
    discoverer = Discoverer(
        lambda: process.config,
        lambda: process.sources,
        lambda: process.pipeline.state.tables.storages,
        process.take_discovered,
        DiscoveryMetrics(process.metrics.registry),
    )
    async with process.lifespan(), discoverer.following(), _hang_up(process.reloader.ask), administration:
        runner = await _listen(process, listener)
        _log_addresses(start)
        manager.ready()
        async with manager.watched():
            await stop.wait()
            manager.stopping()
            await _drain(process, runner)


async def _serve_slot(start: Start, slot: Slot) -> None:
    secrets = WorkerSecrets.unpack(slot.secrets)
    write_values_to(*slot.values)
    process = ServerProcess(
        start,
        secrets,
        workers=slot.count,
        now_ms=epoch_ms,
        shared_limits=SharedLimits(slot.limits, workers=slot.count, worker=slot.index),
        reports_expiries=slot.index == 0,
    )
    recorder = process.pipeline.recorder
    recorder.on_begun = lambda request, record: slot.lines.put(message_line(begun=request, record=record))
    recorder.on_ended = lambda request: slot.lines.put(message_line(ended=request))
    stop = _stop_signals()
    discovered = DiscoveredFile(secrets.discovered).following(process.take_discovered)
    async with process.lifespan(), discovered, _hang_up(process.reloader.ask):
        runner = await _listen(process, slot.listener)
        slot.ready()
        following = asyncio.ensure_future(slot.follow(process.reloader.reload, process.inspector.answer))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        slot.lines.put(message_line(draining=True))
        # The supervisor is answered until the end.
        await _drain(process, runner)
        following.cancel()
        stopping.cancel()


async def _supervise(start: Start) -> None:
    path, config, workers = start.path, start.config, len(start.listeners)
    gc.enable()
    metrics, stop, audit = SupervisorMetrics(), _stop_signals(), open_audit(config)
    metrics.audit = audit
    manager = ServiceManager.of_environment(os.environ)
    latest, storages = [config], [_own_storages(config)]
    # The files of secrets as they were read: one may have changed since.
    read = (*start.read, *config.secret_stamp) if start.read else ()

    async def take(loaded: Config) -> None:
        latest[0], storages[0] = loaded, _own_storages(loaded, storages[0])

    # This process has secrets, too: of the database, of catalogs and of the storages that it searches.
    reloader = Reloader(
        lambda: [path, *latest[0].secret_files], lambda: accepted(path, config, workers=workers), take
    )
    reloader.within = manager.reloading
    reloader.noticed = _recording(audit)
    discovered = DiscoveredFile(memory_file("discovered"))
    secrets = replace(WorkerSecrets.made(config), discovered=discovered.descriptor)
    sources = Sources(lambda: latest[0], must_exist=secrets.has_database)
    discoverer = Discoverer(
        lambda: latest[0],
        sources.all,
        lambda: storages[0],
        discovered.write,
        metrics.discovery,
    )

    async def obstacle() -> str | None:
        # The others know the recipients; this one would refuse them.
        if not sources.had_database:
            return None
        return await asyncio.to_thread(database_problem, latest[0])

    supervisor = Supervisor(
        # -P: only the installed package is importable, also from the top of a checkout.
        [sys.executable, "-P", "-m", "gateway", "serve", "-c", str(path)],
        start.listeners,
        environment=without_service_manager(os.environ),
        secrets=lambda: replace(
            secrets,
            config_text=latest[0].text,
            of_files=latest[0].secrets,
            has_database=sources.had_database,
        ).pack(),
        events=_Recorded(metrics, audit),
        obstacle=obstacle,
        shared=[discovered.descriptor],
    )

    def page() -> bytes:
        metrics.workers.set(len(supervisor.process_ids))
        return workers_page(supervisor.values, metrics)

    def hang_up() -> None:
        reloader.ask()
        supervisor.hang_up()

    async def reload() -> ReloadResult:
        refused = await reloader.reload()
        # A configuration that this process rejects is not sent to the workers.
        return ReloadResult(refused) if refused else ReloadResult(None, await supervisor.reload())

    async def end() -> None:
        manager.stopping()
        await supervisor.stop(seconds=latest[0].gateway.drain_seconds + KILL_MARGIN_SECONDS)

    async with sources.following(), discoverer.following(), manager.watched():
        administration = _administration(
            config,
            start.admin_listener,
            lambda: latest[0],
            audit=audit,
            page=page,
            reload=reload,
            had_database=lambda: sources.had_database,
            metrics=metrics.admin,
            ask=supervisor.ask,
            workers=workers,
        )
        try:
            if not await _ended_before(stop, supervisor.start()):
                return
            async with _hang_up(hang_up), reloader.watching(read), administration:
                _log_addresses(start)
                log.info("serving by %d workers", workers)
                manager.ready()
                await stop.wait()
                # Metrics are served until the workers have ended.
                await end()
        finally:
            await end()
            if audit is not None:
                await asyncio.to_thread(audit.close, timeout_seconds=CLOSE_SECONDS)


async def _ended_before(stop: asyncio.Event, starting: Coroutine[Any, Any, None]) -> bool:
    """Return whether a start has ended before the signal to stop, which cancels it. Raises its error."""
    started, stopped = asyncio.ensure_future(starting), asyncio.ensure_future(stop.wait())
    await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if started.done():
        await started
        return True
    started.cancel()
    with suppress(asyncio.CancelledError):
        await started
    return False


def _recording(audit: AuditLog | None) -> Callable[[str, str | None], None]:
    """Return what records reloads by a signal or a changed file, as the admin API records its own."""

    def record(cause: str, refused: str | None) -> None:
        if audit is not None:
            status = 200 if refused is None else 400
            audit.put(action_record(RELOAD, cause, None, status, at_ms=epoch_ms()).line())

    return record


class _Recorded(WorkerEvents):
    """What happens to workers, in the metrics and in the audit log."""

    def __init__(self, metrics: SupervisorMetrics, audit: AuditLog | None) -> None:
        self._metrics = metrics
        self._audit = audit

    def ended(self, process_id: int) -> None:  # noqa: ARG002 - the log has it
        self._metrics.worker_restarts.inc()

    def hung(self) -> None:
        self._metrics.worker_hangs.inc()

    def cut(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._metrics.ended_streams += len(records)
        log.error("%d answers ended with their worker", len(records))
        if self._audit is not None:
            for record in records:
                self._audit.put(json_line(cut_by_worker(record, epoch_ms())))


def _own_storages(config: Config, previous: Storages | None = None) -> Storages:
    """Return the storages of the process that supervises workers. They sign nothing."""
    return Storages(config, url_key=b"", environment=os.environ, previous=previous)


async def _listen(process: ServerProcess, listener: socket.socket) -> Runner:
    runner = Runner(
        process.pipeline,
        # A client that leaves cancels the work for its answer.
        handler_cancellation=True,
        # How long the rest of a body is read after an early answer: a client that is still sending could not
        # read the answer from a reset connection.
        lingering_time=LINGERING_SECONDS,
        # aiohttp stops to read at twice that.
        read_bufsize=BUFFERED_BYTES // 2,
    )

    def take(config: Config) -> None:
        limits = config.gateway.limits
        rate = DrainRate(limits.minimum_bytes_per_second, limits.slow_reader_seconds)
        held_bytes = process.pipeline.limits.memory.limit_bytes // HELD_PART
        runner.limit(limits.idle_connection_seconds, rate, held_bytes)
        _bound_unread(listener, rate)

    allow_restart(listener)
    take(process.config)
    process.on_reload = take
    process.strangers = runner.strangers
    await runner.setup()
    # Objects of the start live as long as the process; collections skip them. A last collection would find
    # some thousands that do not, and takes longer than all the rest of this function.
    gc.freeze()
    gc.enable()
    # Requests leave almost no reference cycles, and by default every second one starts a collection.
    gc.set_threshold(COLLECT_AFTER_OBJECTS, 20, 20)
    await Site(runner, listener, ssl_context=process.tls).start()
    return runner


def _bound_unread(listener: socket.socket, rate: DrainRate) -> None:
    """Make the kernel drop a client that does not read the rest of its answer.

    The end of an answer waits in the connection's buffers when its handler is done; nothing checks it again.
    """
    seconds = rate.write_seconds(UNREAD_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Zero is the system's default.
        milliseconds = 0 if seconds is None else min(round(seconds * 1000), MAX_USER_TIMEOUT_MS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


async def _drain(process: ServerProcess, runner: Runner) -> None:
    """Let running requests end, and end the rest, within `drainSeconds`."""
    log.info("draining")
    pipeline, gateway = process.pipeline, process.config.gateway
    pipeline.draining = True
    end_seconds = time.monotonic() + gateway.drain_seconds
    cut_seconds = end_seconds - min(CUT_SECONDS, gateway.drain_seconds / 4)
    process.end_seconds = end_seconds
    await asyncio.sleep(min(gateway.drain_delay_seconds, cut_seconds - time.monotonic()))
    await runner.stop_accepting()
    if not await pipeline.running.none(cut_seconds - time.monotonic()):
        count = await pipeline.running.end(LAST_LINE_SECONDS * 2)
        log.warning("%d requests did not end within the drain and are cut off", count)
    await runner.sent(end_seconds - LAST_LINE_SECONDS - time.monotonic())
    await runner.close()


@asynccontextmanager
async def _administration(
    settings: Config,
    listener: socket.socket | None,
    config: Callable[[], Config],
    *,
    audit: AuditLog | None,
    page: Callable[[], bytes],
    reload: Callable[[], Awaitable[ReloadResult]],
    had_database: Callable[[], bool],
    metrics: AdminMetrics,
    ask: site.Ask,
    workers: int,
) -> AsyncIterator[None]:
    """Serve the admin listener, if one is configured, within the context."""
    admin = settings.gateway.admin
    if admin is None or listener is None:
        yield
        return
    # Without an admin listener the server starts sooner.
    from gateway.admin.app import create_admin_app  # noqa: PLC0415
    from gateway.admin.setup import administer  # noqa: PLC0415
    from gateway.console.app import add_console  # noqa: PLC0415

    administration = administer(
        admin,
        config,
        audit=audit,
        metrics_page=page,
        reload=reload,
        had_database=had_database,
        metrics=metrics,
        now_ms=epoch_ms,
    )
    read = stamp(files_of(admin.ssl))
    tls = listener_context(admin.ssl, admin.host)
    app = create_admin_app(administration)
    viewer = admin.viewer_token_sha256
    add_console(app, site.Site(administration, config, ask, workers, viewer, epoch_ms))
    runner = AppRunner(app, access_log=None, shutdown_timeout=ADMIN_DRAIN_SECONDS)
    await runner.setup()
    try:
        allow_restart(listener)
        await Site(runner, listener, ssl_context=tls).start()
        async with _renewing(tls, admin.ssl, read, metrics):
            yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _renewing(
    context: SSLContext | None, settings: Ssl | None, read: Stamp, metrics: AdminMetrics
) -> AsyncIterator[None]:
    """Reload the certificates of the admin listener when their files change."""
    if context is None or settings is None:
        yield
        return

    async def take(settings: Ssl) -> None:
        await asyncio.to_thread(renew, context, settings)

    reloader = Reloader(
        lambda: files_of(settings),
        lambda: settings,
        take,
        what="certificate of the admin listener",
        outcome=lambda refused: metrics.certificate_reloads.labels(outcome_of(refused)).inc(),
    )
    async with reloader.watching(read):
        yield


def _stop_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def _hang_up(ask: Callable[[], None]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, ask)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        ignore_hang_up()
