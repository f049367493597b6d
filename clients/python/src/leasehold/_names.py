"""Finding the addresses of a name in a thread of its own.

Event loops do it in the executor that they share with the rest of the program. All its threads may be busy, and Python
shuts it down when the main thread returns, although other threads go on.
"""

from __future__ import annotations

import concurrent.futures
import ipaddress
import socket
import threading
from typing import List


def addresses_of(host: str, port: int, family: int) -> concurrent.futures.Future[List[str]]:
    """Whoever does not wait for it any more leaves it to the thread: the look-up cannot be interrupted."""
    found: concurrent.futures.Future[List[str]] = concurrent.futures.Future()
    found.set_running_or_notify_cancel()

    def look() -> None:
        try:
            answers = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            found.set_result(list(dict.fromkeys(str(address[0]) for *_, address in answers)))
        except (OSError, UnicodeError) as error:
            found.set_exception(error if isinstance(error, OSError) else OSError(str(error)))

    if _is_address(host):
        found.set_result([host])
        return found
    try:
        threading.Thread(target=look, name="leasehold-names", daemon=True).start()
    except RuntimeError:
        # The interpreter is shutting down, and starts no thread any more.
        look()
    return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
