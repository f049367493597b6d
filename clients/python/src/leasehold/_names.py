"""Finding the addresses of a name in a thread of its own.

Event loops do it in the executor that they share with the rest of the program. All its threads may be busy, and Python
shuts it down when the main thread returns, although other threads go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import queue
import socket
import threading
from typing import Callable, List, Union

Found = Union[List[str], OSError]


async def addresses_of(host: str, port: int, family: int) -> List[str]:
    if _is_address(host):
        return [host]
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Found] = loop.create_future()

    def look() -> None:
        answer = _look(host, port, family)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_give, found, answer)

    _look_in_thread(look)
    return _known(await found)


def addresses_within(limit: float, host: str, port: int, family: int) -> List[str]:
    """The same for a thread that waits for it: the look-up itself cannot be interrupted."""
    if _is_address(host):
        return [host]
    found: queue.SimpleQueue[Found] = queue.SimpleQueue()
    _look_in_thread(lambda: found.put(_look(host, port, family)))
    try:
        answer = found.get(timeout=max(0.0, limit))
    except queue.Empty:
        raise OSError(f"the name {host} was not found within {limit:.3f} s") from None
    return _known(answer)


def _look_in_thread(look: Callable[[], None]) -> None:
    try:
        threading.Thread(target=look, name="leasehold-names", daemon=True).start()
    except RuntimeError:
        # The interpreter is shutting down, and starts no thread any more.
        look()


def _known(answer: Found) -> List[str]:
    if isinstance(answer, OSError):
        raise answer
    return answer


def _give(found: asyncio.Future[Found], answer: Found) -> None:
    if not found.done():
        found.set_result(answer)


def _look(host: str, port: int, family: int) -> Found:
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError as error:
        return OSError(str(error))
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
