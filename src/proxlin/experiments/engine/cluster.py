"""The cases of a sweep on a Dask cluster: one that is there, or one of `workers` processes on this
machine.

Dask replaces workers that die. Here the silent ones are told apart, and every loss becomes one
sentence.
"""

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ...errors import UserError, require
from .base import Case
from .workers import (
    ATTEMPTS,
    BEAT,
    ONE_THREAD,
    SILENCE,
    STARTUP,
    Outcome,
    Watch,
    case_key,
    execute,
    prepare,
    without_ctrl_c,
)

NOBODY = "nobody"  # whose silence is the time for which there has been no worker at all
CONNECTING = "30s"  # that a scheduler may take to answer
LOST = (OSError, TimeoutError)  # what Dask raises if a scheduler is gone
# what it raises if it cannot connect: nobody there, no such address, no certificates for tls
UNREACHED = (OSError, ValueError, TypeError, RuntimeError, ImportError)


def check_address(address: str) -> None:
    """Refuse what is not the address of a scheduler, before anything is made or asked."""
    comm = require("distributed.comm", "cluster")
    addressing = require("distributed.comm.addressing", "cluster")
    registry = require("distributed.comm.registry", "cluster")
    try:
        scheme, place = comm.parse_address(address)
        registry.get_backend(scheme)
        host, port = addressing.parse_host_port(place)
        known = host.strip() != "" and 0 < port < 2**16
    except UNREACHED:
        known = False
    if not known:
        raise UserError(
            f"--scheduler {address!r} is not the address of a Dask scheduler; name one such as tcp://host:8786."
        )


class Dask:
    """An engine whose workers are those of a Dask scheduler."""

    def __init__(self, scheduler: str | None, workers: int, silence: float = SILENCE):
        self.scheduler = scheduler
        self.workers = workers
        self.silence = silence
        self.client: Any = None
        self.cluster: Any = None
        self.watch = Watch()

    def outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
        """Yield each case with its outcome as it finishes."""
        distributed = require("distributed", "cluster")
        client = self.client or self._connect(distributed)
        futures = {
            self._submit(client, case, order): case for order, case in enumerate(cases)
        }
        # With results: they are fetched in the background, where one that a stopped worker holds
        # keeps nobody waiting.
        completed = distributed.as_completed(
            list(futures), loop=client.loop, with_results=True, raise_errors=False
        )
        while futures:
            for future, found in completed.next_batch(block=False):
                case = futures.pop(future)
                yield case, self._outcome(found, future.status, case)
            time.sleep(BEAT / 10)
            if time.monotonic() - self.watch.last > BEAT:
                self._look(client)
                if any(future.cancelled() for future in futures):
                    raise self._gone()

    def close(self) -> None:
        """Leave the cluster, and end it if it is our own."""
        for each in (self.client, self.cluster):
            if each is not None:
                with suppress(*LOST):
                    each.close(timeout=10)

    def _submit(self, client: Any, case: Case, order: int) -> Any:
        key = f"proxlin-{case_key(case)}"
        return client.submit(
            execute,
            case.task,
            dict(case.settings),
            key=key,
            retries=ATTEMPTS,
            priority=-order,
        )

    def _outcome(self, found: Any, status: str, case: Case) -> Outcome:
        """Return what a worker sent back, or raise what became of it."""
        if isinstance(found, Outcome):
            return found
        if status != "error":
            raise self._gone()
        _, error, trace = found
        if isinstance(error, require("distributed", "cluster").KilledWorker):
            raise UserError(
                f"too many Dask workers died on the case {dict(case.settings)}, or were silent for {self.silence:g} s; "
                "they may lack memory."
            ) from error
        raise error.with_traceback(trace)

    def _look(self, client: Any) -> None:
        """Have the scheduler forget the workers that are silent, so that their cases run elsewhere.

        Our own cluster does that by itself, and starts others in their place.
        """
        patience = self.silence
        if self.scheduler is None:
            patience = max(self.silence, STARTUP)
        try:
            workers = client.sync(
                client.scheduler.identity, n_workers=-1, callback_timeout=self.silence
            )["workers"]
            beats = {
                address: float(worker["last_seen"])
                for address, worker in workers.items()
            }
            beats[NOBODY] = time.monotonic() if workers else 0.0
            silence = self.watch.look(beats)
            for address in workers:
                if self.scheduler is not None and silence[address] > self.silence:
                    forget = {
                        "address": address,
                        "stimulus_id": f"proxlin-silent-{time.time()}",
                    }
                    client.sync(
                        client.scheduler.unregister,
                        **forget,
                        callback_timeout=self.silence,
                    )
        except LOST as error:
            raise self._gone() from error
        if silence[NOBODY] > patience:
            raise UserError(
                f"the Dask scheduler{self._where()} has had no worker for {patience:g} s; every finished case is kept: "
                "start workers and give the same command again."
            )

    def _gone(self) -> UserError:
        return UserError(
            f"the Dask scheduler{self._where()} does not answer any more; every finished case is kept: once it runs "
            "again, the same command goes on from there."
        )

    def _where(self) -> str:
        return f" at {self.scheduler}" if self.scheduler else ""

    def _connect(self, distributed: Any) -> Any:
        """Return a client of the scheduler, whose workers are prepared, also those that join later."""
        if self.scheduler is None:
            with without_ctrl_c():
                self.cluster = _local_cluster(distributed, self.workers, self.silence)
        for name in list(logging.root.manager.loggerDict):
            # a lost connection is a page of it; we say a sentence
            if name.startswith(("distributed", "tornado")):
                logging.getLogger(name).setLevel(logging.CRITICAL)
        address = self.cluster if self.scheduler is None else self.scheduler
        # The client is there before it connects: one that fails and is not closed waits for a
        # minute at the end of the process, for a loop that has ended.
        client = distributed.Client.__new__(distributed.Client)
        try:
            client.__init__(address, timeout=CONNECTING, set_as_default=False)
        except BaseException as error:
            with suppress(*LOST, AttributeError):
                client.close(timeout=10)
            if not isinstance(error, UNREACHED):
                raise
            raise UserError(
                f"no Dask scheduler answers at {self.scheduler} ({error})."
            ) from error
        self.client = client
        self.client.register_plugin(_plugin(distributed))
        return self.client


def _local_cluster(distributed: Any, workers: int, silence: float) -> Any:
    """Start a cluster of our own, which replaces a worker that is silent too."""
    settings: dict[str, Any] = {"distributed.nanny.pre-spawn-environ": ONE_THREAD}
    if silence < math.inf:
        settings["distributed.scheduler.worker-ttl"] = f"{silence} s"
    require("dask", "cluster").config.set(settings)
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        silence_logs=logging.ERROR,
    )


def _plugin(distributed: Any) -> Any:
    class Prepare(distributed.WorkerPlugin):
        name = "proxlin"

        def setup(self, worker: Any) -> None:
            prepare()

    return Prepare()
