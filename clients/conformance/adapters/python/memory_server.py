"""The server in memory of the package for Python, started as a real one is: by its configuration file, which the driver
writes. It has what the driver looks at, too."""

import asyncio
import os
import sys

import common  # noqa: F401
from leasehold import _memory
from leasehold._memory import Memory, Session
from leasehold._time import now

KNOWN = "bind port unixsocket dir save appendonly repl-diskless-sync repl-diskless-load hz loadmodule".split()
KNOWN += ["enable-debug-command", "enable-module-command"]


class Watched(Memory):
    def told(self, *_):
        return b"process_id:%d\r\nconnected_clients:%d\r\n" % (os.getpid(), len(self.sessions))

    def left(self, _, key):
        return max((hold.told()[5] for hold in self._locks.get(key, [])), default=-2)

    def expire(self, _, key, millis):
        for hold in self._locks.get(key, []):
            hold.end = now() + int(millis) / 1000
        return int(key in self._locks)

    def clients(self, session, word, *rest):
        if word == b"KILL" and rest[0] == b"TYPE":
            for each in self.sessions - {session}:
                if bool(each.channels) == (rest[1] == b"pubsub"):
                    each.transport.abort()
        return "OK"

    def pubsub(self, *_):
        return sorted(channel for each in self.sessions for channel in each.channels)

    commands = {**Memory.commands, b"INFO": told, b"PTTL": left, b"PEXPIRE": expire, b"CLIENT": clients, b"PUBSUB": pubsub}


class OnThisThread:
    """In place of a thread of its own: a process of one thread stops at once when it is told to."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def stop(self, _):
        pass


def main():
    lines = [line.split(" ", 1) for line in open(sys.argv[-1]).read().splitlines()]
    unknown = [name for name, _ in lines if name not in KNOWN]
    if unknown:
        sys.exit(f"a server in memory has no {', '.join(unknown)}")
    settings = dict(lines)
    _memory.LoopThread = OnThisThread
    memory = Watched()
    loop = memory.thread.loop

    async def listen():
        if settings["port"] != "0":
            await loop.create_server(lambda: Session(memory), "127.0.0.1", int(settings["port"]))
        await loop.create_unix_server(lambda: Session(memory), settings["unixsocket"].strip('"'))

    loop.run_until_complete(listen())
    loop.run_forever()


main()
