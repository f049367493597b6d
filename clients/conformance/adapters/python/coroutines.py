"""The package for Python from asyncio, as the driver of the conformance scenarios talks to it."""

import asyncio
import dataclasses
import json
import sys
from typing import Any, Dict

import common  # isort: skip
import redis.asyncio
from leasehold import Settings
from leasehold.asyncio import Leasehold, Quorum
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import Sentinel


class Adapter:
    def __init__(self) -> None:
        self.locks: Any = None
        self.leases: Dict[str, Any] = {}
        self.works: Dict[str, "asyncio.Future[Any]"] = {}
        self.tasks: Dict[int, "asyncio.Task[Any]"] = {}
        self.telling: "set[asyncio.Task[Any]]" = set()

    async def open(self, request: Dict[str, Any]) -> Any:
        self.kind = Quorum if "quorum" in request else Leasehold
        self.client = common.client_of(redis.asyncio, Sentinel, ClusterNode, request)
        self.settings = Settings(**common.in_seconds(request.get("settings", {})))
        self.locks = self.kind(self.client, self.settings)
        return {}

    async def events(self, request: Dict[str, Any]) -> Any:
        # What is told of is fixed when a client is made.
        self.locks = self.kind(self.client, dataclasses.replace(self.settings, on_event=common.step))
        return {}

    async def acquire(self, request: Dict[str, Any]) -> Any:
        return self.keep_lease(request, await common.lock_of(self.locks, request).acquire())

    async def do_try(self, request: Dict[str, Any]) -> Any:
        lease = await common.lock_of(self.locks, request).try_acquire()
        return {"held": False} if lease is None else self.keep_lease(request, lease)

    async def run(self, request: Dict[str, Any]) -> Any:
        told = asyncio.get_running_loop().create_future()
        self.works[request["lease"]] = told

        async def work(lease: Any) -> Any:
            self.keep_lease(request, lease)
            common.write({"event": "working", "lease": request["lease"], "fence": str(lease.fence)})
            end = await told
            if "error" in end:
                raise common.WorkError(end["error"])
            return end["result"]

        return {"result": await common.lock_of(self.locks, request).run(work)}

    async def finish(self, request: Dict[str, Any]) -> Any:
        told = self.works[request["lease"]]
        if not told.done():
            told.set_result(request)
        return {}

    async def cancel(self, request: Dict[str, Any]) -> Any:
        task = self.tasks.get(request["request"])
        if task is not None:
            task.cancel()
        return {}

    async def state(self, request: Dict[str, Any]) -> Any:
        return common.state(self.leases[request["lease"]])

    async def block(self, request: Dict[str, Any]) -> Any:
        common.hold_everything(request["for"])
        return common.state(self.leases[request["lease"]])

    async def extend(self, request: Dict[str, Any]) -> Any:
        extended = await self.leases[request["lease"]].extend(common.seconds(request["ttl"]))
        return {"outcome": "extended" if extended else "lost"}

    async def upgrade(self, request: Dict[str, Any]) -> Any:
        lease = self.leases[request["lease"]]
        return {"held": False} if await lease.upgrade() is None else common.held(lease)

    async def downgrade(self, request: Dict[str, Any]) -> Any:
        lease = self.leases[request["lease"]]
        return {"held": False} if await lease.downgrade() is None else common.held(lease)

    async def guard(self, request: Dict[str, Any]) -> Any:
        came = await self.leases[request["lease"]].guard(*request["command"])
        return {"reply": common.reply(came)}

    async def release(self, request: Dict[str, Any]) -> Any:
        return {"outcome": (await self.leases[request["lease"]].release()).value}

    async def extend_by(self, request: Dict[str, Any]) -> Any:
        extended = await self.leases[request["lease"]].extend_by(common.seconds(request["by"]))
        return {"outcome": "extended" if extended else "lost"}

    async def detach(self, request: Dict[str, Any]) -> Any:
        return {"text": str(self.leases[request["lease"]].detach())}

    async def adopt(self, request: Dict[str, Any]) -> Any:
        return self.keep_lease(request, await self.locks.adopt(request["text"]))

    async def info(self, request: Dict[str, Any]) -> Any:
        return common.info(await self.locks.info(common.name_of(request)))

    async def holders(self, request: Dict[str, Any]) -> Any:
        return common.holders(await self.locks.holders(common.name_of(request)))

    async def waiters(self, request: Dict[str, Any]) -> Any:
        return common.waiters(await self.locks.waiters(common.name_of(request)))

    async def top(self, request: Dict[str, Any]) -> Any:
        return common.top(await self.locks.top())

    async def log(self, request: Dict[str, Any]) -> Any:
        return common.log(await self.locks.log())

    async def observe(self, request: Dict[str, Any]) -> Any:
        async def look() -> None:
            async for leader in self.locks.election(request["name"], "nobody").observe():
                common.led(request["observer"], leader)

        self.telling.add(asyncio.ensure_future(look()))
        return {}

    async def campaign(self, request: Dict[str, Any]) -> Any:
        ttl = common.seconds(request["ttl"])
        term = await self.locks.election(request["name"], request["candidate"], ttl=ttl).campaign()
        return self.keep_lease(request, term)

    async def resign(self, request: Dict[str, Any]) -> Any:
        return {"outcome": (await self.leases[request["lease"]].resign()).value}

    async def leader(self, request: Dict[str, Any]) -> Any:
        return common.leader(await self.locks.election(request["name"], "nobody").leader())

    async def close(self, request: Dict[str, Any]) -> Any:
        left = await self.locks.close(common.seconds(request["limit"]))
        return {"left": [name if isinstance(name, str) else name.decode(errors="replace") for name in left]}

    def keep_lease(self, request: Dict[str, Any], lease: Any) -> Any:
        self.leases[request["lease"]] = lease
        task = asyncio.ensure_future(self.tell_of_loss(request["lease"], lease))
        self.telling.add(task)
        return common.held(lease)

    async def tell_of_loss(self, name: str, lease: Any) -> None:
        loss = await lease.signal.wait()
        common.write({"event": "lost", "lease": name, "loss": common.LOSSES[loss]})

    async def answer(self, request: Dict[str, Any]) -> None:
        do = request["do"]
        try:
            common.answer(request, await getattr(self, "do_try" if do == "try" else do)(request))
        except asyncio.CancelledError as error:
            common.fail(request, error)
        except Exception as error:
            common.fail(request, error)
        finally:
            self.tasks.pop(request["id"], None)


async def main() -> None:
    adapter = Adapter()
    reader = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while True:
        line = await reader.readline()
        if not line:
            return
        request = json.loads(line)
        adapter.tasks[request["id"]] = asyncio.ensure_future(adapter.answer(request))


if __name__ == "__main__":
    asyncio.run(main())
