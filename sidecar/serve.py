"""``sidecar serve``: the server until a signal stops it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys

from sidecar.config import Config
from sidecar.http.app import create_app
from sidecar.http.service import Service
from sidecar.server import SidecarServer, bind, url_of
from sidecar.telemetry import configure_logging
from sidecar.wiring import build

log = logging.getLogger("sidecar")

GARBAGE_OBJECTS = 10_000
"""New containers, less those that are gone again, after which the youngest are looked through for garbage."""


async def serve_until_stopped(config: Config) -> None:
    """Print ``listening on http://...`` once connections are accepted; return after a clean stop.

    Raises ``ConfigError`` when the address cannot be had or a part of the configuration makes no sense.
    """
    configure_logging(config.server.log_level, config.server.log_texts)
    listener = bind(config.server)
    log.info("configuration", extra={"digest": config.digest()})
    for section, values in config.describe().items():
        log.info("settings", extra={"section": section, **{f"{section}.{k}": v for k, v in values.items()}})
    try:
        service = build(config)
        await service.start()
    except BaseException:
        listener.close()
        raise

    def listening() -> None:
        print(f"listening on {url_of(listener)}", flush=True)

    server = SidecarServer(create_app(service), config.server, listening)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    settling = asyncio.create_task(settle(service))
    try:
        await server.serve([listener])
    finally:
        settling.cancel()
        listener.close()
        await service.close()
    if not server.started:
        print("sidecar: the server could not start; see the log above", file=sys.stderr)
        raise SystemExit(1)


async def settle(service: Service) -> None:
    """After the warm-up, let the garbage collector come less often and pass over what stays for good.

    Its work stops every reply. Nearly everything here is freed without it, as soon as it is not used any more.
    """
    await service.warmed.wait()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
