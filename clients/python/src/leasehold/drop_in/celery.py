"""A task of Celery that holds a lock while it runs::

    @app.task(base=Singleton, locks=Leasehold(redis.Redis()), lock="report:{0}")
    def write(number: int) -> None: ...

While another worker holds the lock, the task is sent again to run after ``busy_countdown`` seconds, under the same id,
as often as it takes: that is none of its own retries. With ``busy_countdown=None`` it is ignored then, and whoever
waits for its result waits in vain. In the task, ``self.lease`` (with ``bind=True``) has the fence and tells of a loss.
"""

from __future__ import annotations

import threading
from typing import Any, Optional

from celery import Task
from celery.exceptions import Ignore, ImproperlyConfigured

from .._naming import naming
from ..errors import Busy
from ..settings import Duration
from ..sync import Lease, Leasehold


class Singleton(Task):  # type: ignore[misc,unused-ignore]
    """See the module."""

    abstract = True
    locks: Optional[Leasehold] = None
    lock: Optional[str] = None  # The name of the task if it is left out
    ttl: Optional[Duration] = None  # How long the lease lasts unless it is renewed
    busy_countdown: Optional[float] = 1.0

    _held = threading.local()

    @property
    def lease(self) -> Lease:
        """The lease of the task that this thread runs."""
        leases = self._held.__dict__.get("leases")
        if not leases:
            raise RuntimeError("lease: no task with a lock is running in this thread")
        its: Lease = leases[-1]
        return its

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = naming(self.lock, self.run)(args, kwargs) if self.lock else str(self.name)
        if self.locks is None:
            raise ImproperlyConfigured(
                f"{self.name}: @app.task(base=Singleton, locks=Leasehold(…)) says where its lock is"
            )
        lease = self.locks.try_acquire(name, ttl=self.ttl)
        if lease is None:
            request = self.request
            if request.called_directly or request.is_eager:
                raise Busy(name, 0.0)
            if self.busy_countdown is not None:
                again = {"countdown": self.busy_countdown, "retries": request.retries}
                self.signature_from_request(request, args, kwargs, **again).apply_async()
            raise Ignore(f"the lock {name!r} is held by another")
        leases = self._held.__dict__.setdefault("leases", [])
        leases.append(lease)
        try:
            with lease:
                return super().__call__(*args, **kwargs)
        finally:
            leases.pop()
