"""A task of Celery that holds a lock while it runs::

    @app.task(base=Singleton, locks=Leasehold(redis.Redis()), lock="report:{0}")
    def write(number: int) -> None: ...

While another worker holds the lock, the task is retried after ``busy_countdown`` seconds, as often as its own
``max_retries`` says; with ``busy_countdown=None`` it is ignored. In the task, ``self.lease`` (with ``bind=True``) has
the fence and tells of a loss.
"""

from __future__ import annotations

import threading
from typing import Any, Optional

from celery import Task
from celery.exceptions import Ignore

from .._naming import naming
from ..settings import Duration
from ..sync import Lease, Leasehold


class Singleton(Task):  # type: ignore[misc,unused-ignore]
    """See the module."""

    abstract = True
    locks: Leasehold
    lock: Optional[str] = None  # The name of the task if it is left out
    ttl: Optional[Duration] = None  # How long the lease lasts unless it is renewed
    busy_countdown: Optional[float] = 1.0

    _held = threading.local()

    @property
    def lease(self) -> Lease:
        """The lease of the task that this thread runs."""
        its: Lease = self._held.leases[-1]
        return its

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = naming(self.lock, self.run)(args, kwargs) if self.lock else str(self.name)
        lease = self.locks.try_acquire(name, ttl=self.ttl)
        if lease is None:
            if self.busy_countdown is None:
                raise Ignore(f"the lock {name!r} is held by another")
            raise self.retry(countdown=self.busy_countdown)
        leases = self._held.__dict__.setdefault("leases", [])
        leases.append(lease)
        try:
            with lease:
                return super().__call__(*args, **kwargs)
        finally:
            leases.pop()
