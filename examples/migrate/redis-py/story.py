"""redis-py's Lock and Leasehold on one lock: each keeps the other out.

In one terminal: make run. In another: pip install redis, then python3 examples/migrate/redis-py/story.py
"""

import math
import os
import sys
import threading
import time
import uuid

import redis

URL = os.environ.get('REDIS_URL', 'redis://127.0.0.1:6379')
NAME = 'lock:table:2'
TTL = 5000
SHORT = 300
PATIENCE = 10_000

# Waits end by their own patience, not by the client's usual limit for a reply.
client = redis.Redis.from_url(URL, socket_timeout=PATIENCE / 1000 + 5, decode_responses=True)

# --- the old client: this is what you have


def old_lock(ttl=TTL):
    return client.lock(NAME, timeout=ttl / 1000)


# --- the Leasehold client: this is what it becomes


def acquire(owner, ttl=TTL, patience=0):
    """The fence, or None if the lock is held for as long as the patience lasts."""
    request = ['LOCK.ACQUIRE', NAME, owner, ttl]
    end = time.monotonic() + patience / 1000
    while True:
        asked = time.monotonic()
        fence = client.execute_command(*request)
        # If the reply is read so late that the lease may be over, ask again.
        if fence is not None and time.monotonic() < asked + ttl / 1000:
            return fence
        left = math.ceil((end - time.monotonic()) * 1000)
        if fence is None and left <= 0:
            return None
        if fence is None:
            client.execute_command(*request, 'BLOCK', left)  # a grant is confirmed by asking again


def extend(owner, fence, ttl=TTL):
    return client.execute_command('LOCK.EXTEND', NAME, owner, ttl, fence)


def release(owner, fence):
    return client.execute_command('LOCK.RELEASE', NAME, owner, fence)


# --- the story


def tell(who, what, outcome):
    print(f'  {who:<6} {what:<42} {outcome}')


def attempt(work):
    try:
        return work()
    except redis.exceptions.LockError as error:
        return type(error).__name__


def story():
    olga, nina = old_lock(), f'{os.getpid()}:{uuid.uuid4()}'

    print('redis-py holds the lock')
    tell('olga', 'lock.acquire', olga.acquire(blocking=False))
    tell('nina', 'LOCK.ACQUIRE', acquire(nina))
    tell('nina', 'LOCK.RELEASE of a lock that is not hers', release(nina, 0))
    tell('olga', 'lock.extend', olga.extend(1))
    tell('olga', 'lock.reacquire', olga.reacquire())
    tell('olga', 'lock.release', attempt(olga.release) or 'done')

    print('Leasehold holds the lock')
    fence = acquire(nina)
    tell('nina', 'LOCK.ACQUIRE', fence)
    tell('olga', 'lock.acquire', olga.acquire(blocking=False))
    tell('olga', 'lock.locked', olga.locked())
    tell('nina', 'LOCK.EXTEND', extend(nina, fence))
    tell('nina', 'LOCK.RELEASE', release(nina, fence))

    print('redis-py holds the lock, Leasehold waits for it')
    tell('olga', 'lock.acquire', olga.acquire(blocking=False))
    granted = []
    waits = threading.Thread(target=lambda: granted.append(acquire(nina, TTL, PATIENCE)))
    waits.start()
    while not client.execute_command('LOCK.WAITERS', NAME):
        time.sleep(0.01)
    tell('olga', 'lock.release', attempt(olga.release) or 'done')
    waits.join()
    tell('nina', f'LOCK.ACQUIRE BLOCK {PATIENCE}', granted[0])
    tell('nina', 'LOCK.RELEASE', release(nina, granted[0]))

    print('redis-py is too slow')
    slow = old_lock(SHORT)
    tell('olga', 'lock.acquire', slow.acquire(blocking=False))
    fence = acquire(nina, TTL, PATIENCE)
    tell('nina', f'LOCK.ACQUIRE BLOCK {PATIENCE}', fence)
    tell('olga', 'lock.extend of a lock that is not hers', attempt(lambda: slow.extend(1)))
    tell('olga', 'lock.release of a lock that is not hers', attempt(slow.release))
    tell('nina', 'LOCK.RELEASE', release(nina, fence))


try:
    client.execute_command('LOCK.HELP')
except redis.exceptions.ResponseError:
    sys.exit(f'No server with Leasehold at {URL}. Start one: make run')
story()
