"""A job that cron starts on several machines at the same time of day, and that one of them does.

    0 3 * * *  REDIS_URL=redis://redis:6379 python3 nightly.py

The lease is the time box: it is as long as the job may take, and is not renewed. Nobody releases it, so that a machine
whose clock is late finds the lock taken, also when the job was quick. The job is begun at most once a night, also when
the machine that does it dies.
"""

from __future__ import annotations

import os
import platform
import sys
import time

import redis
from leasehold import Lease, Leasehold, LeaseholdError

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
HOST = os.environ.get("HOST", platform.node())

BOX = float(os.environ.get("BOX", "3"))
"""Seconds. In your own program it would be an hour or two."""
STEPS = int(os.environ.get("STEPS", "3"))


def main() -> int:
    with Leasehold(redis.Redis.from_url(URL)) as locks:
        try:
            lease = locks.try_acquire("nightly", ttl=BOX, renew=False)
            if lease is None:
                print(f"{HOST}: another machine does the job tonight")
                return 0
            print(f"{HOST}: begins the job, with fence {lease.fence}", flush=True)
            try:
                job(lease)
            finally:
                lease.detach()
        except LeaseholdError as error:  # cron mails it
            print(f"{HOST}: {error}", file=sys.stderr)
            return 1
    print(f"{HOST}: the job is done")
    return 0


def job(lease: Lease) -> None:
    """The work, in steps. It gives the fence along with what it writes."""
    for _ in range(STEPS):
        lease.check()  # LockLost when the time is up
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
