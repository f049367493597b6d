"""The package for Python from threads, as the driver of the conformance scenarios talks to it."""

import dataclasses
import os
import queue
import signal
import sys
import threading
from typing import Any, Dict

import common  # isort: skip
import redis
from leasehold import Leasehold, Quorum, Settings
from redis.cluster import ClusterNode
from redis.sentinel import Sentinel


class Adapter:
    def __init__(self) -> None:
        self.locks: Any = None
        self.leases: Dict[str, Any] = {}
        self.works: Dict[str, "queue.Queue[Any]"] = {}
        self.is_interruptible = False

    def open(self, request: Dict[str, Any]) -> Any:
        self.kind = Quorum if "quorum" in request else Leasehold
        self.client = common.client_of(redis, Sentinel, ClusterNode, request)
        self.settings = Settings(**common.in_seconds(request.get("settings", {})))
        self.locks = self.kind(self.client, self.settings)
        return {}

    def events(self, request: Dict[str, Any]) -> Any:
        # What is told of is fixed when a client is made.
        self.locks = self.kind(self.client, dataclasses.replace(self.settings, on_event=common.step))
        return {}

    def acquire(self, request: Dict[str, Any]) -> Any:
        lease = common.lock_of(self.locks, request).acquire()
        try:
            return self.keep_lease(request, lease)
        except KeyboardInterrupt:
            # It was granted just before.
            lease.release()
            raise

    def do_try(self, request: Dict[str, Any]) -> Any:
        lease = common.lock_of(self.locks, request).try_acquire()
        return {"held": False} if lease is None else self.keep_lease(request, lease)

    def run(self, request: Dict[str, Any]) -> Any:
        told: "queue.Queue[Any]" = queue.Queue()
        self.works[request["lease"]] = told

        def work(lease: Any) -> Any:
            self.keep_lease(request, lease)
            common.write({"event": "working", "lease": request["lease"], "fence": str(lease.fence)})
            end = told.get()
            if "error" in end:
                raise common.WorkError(end["error"])
            return end["result"]

        return {"result": common.lock_of(self.locks, request).run(work)}

    def finish(self, request: Dict[str, Any]) -> Any:
        self.works[request["lease"]].put(request)
        return {}

    def cancel(self, request: Dict[str, Any]) -> Any:
        # The program is interrupted, as by a person: a wait in a thread ends in no other way but `close`.
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    def state(self, request: Dict[str, Any]) -> Any:
        return common.state(self.leases[request["lease"]])

    def block(self, request: Dict[str, Any]) -> Any:
        common.hold_everything(request["for"])
        return common.state(self.leases[request["lease"]])

    def extend(self, request: Dict[str, Any]) -> Any:
        extended = self.leases[request["lease"]].extend(common.seconds(request["ttl"]))
        return {"outcome": "extended" if extended else "lost"}

    def upgrade(self, request: Dict[str, Any]) -> Any:
        lease = self.leases[request["lease"]]
        return {"held": False} if lease.upgrade() is None else common.held(lease)

    def downgrade(self, request: Dict[str, Any]) -> Any:
        lease = self.leases[request["lease"]]
        return {"held": False} if lease.downgrade() is None else common.held(lease)

    def guard(self, request: Dict[str, Any]) -> Any:
        came = self.leases[request["lease"]].guard(*request["command"])
        return {"reply": common.reply(came)}

    def release(self, request: Dict[str, Any]) -> Any:
        return {"outcome": self.leases[request["lease"]].release().value}

    def extend_by(self, request: Dict[str, Any]) -> Any:
        extended = self.leases[request["lease"]].extend_by(common.seconds(request["by"]))
        return {"outcome": "extended" if extended else "lost"}

    def detach(self, request: Dict[str, Any]) -> Any:
        return {"text": str(self.leases[request["lease"]].detach())}

    def adopt(self, request: Dict[str, Any]) -> Any:
        return self.keep_lease(request, self.locks.adopt(request["text"]))

    def info(self, request: Dict[str, Any]) -> Any:
        return common.info(self.locks.info(common.name_of(request)))

    def holders(self, request: Dict[str, Any]) -> Any:
        return common.holders(self.locks.holders(common.name_of(request)))

    def waiters(self, request: Dict[str, Any]) -> Any:
        return common.waiters(self.locks.waiters(common.name_of(request)))

    def top(self, request: Dict[str, Any]) -> Any:
        return common.top(self.locks.top())

    def log(self, request: Dict[str, Any]) -> Any:
        return common.log(self.locks.log())

    def observe(self, request: Dict[str, Any]) -> Any:
        def look() -> None:
            for leader in self.locks.election(request["name"], "nobody").observe():
                common.led(request["observer"], leader)

        threading.Thread(target=look, daemon=True).start()
        return {}

    def campaign(self, request: Dict[str, Any]) -> Any:
        ttl = common.seconds(request["ttl"])
        term = self.locks.election(request["name"], request["candidate"], ttl=ttl).campaign()
        return self.keep_lease(request, term)

    def resign(self, request: Dict[str, Any]) -> Any:
        return {"outcome": self.leases[request["lease"]].resign().value}

    def leader(self, request: Dict[str, Any]) -> Any:
        return common.leader(self.locks.election(request["name"], "nobody").leader())

    def close(self, request: Dict[str, Any]) -> Any:
        left = self.locks.close(common.seconds(request["limit"]))
        return {"left": [name if isinstance(name, str) else name.decode(errors="replace") for name in left]}

    def keep_lease(self, request: Dict[str, Any], lease: Any) -> Any:
        self.leases[request["lease"]] = lease
        threading.Thread(target=self.tell_of_loss, args=(request["lease"], lease), daemon=True).start()
        return common.held(lease)

    def tell_of_loss(self, name: str, lease: Any) -> None:
        loss = lease.signal.wait()
        common.write({"event": "lost", "lease": name, "loss": common.LOSSES[loss]})

    def answer(self, request: Dict[str, Any]) -> None:
        do = request["do"]
        try:
            came = getattr(self, "do_try" if do == "try" else do)(request)
        except BaseException as error:
            common.fail(request, error)
        else:
            common.answer(request, came)

    def answer_interruptibly(self, request: Dict[str, Any]) -> None:
        """An interruption ends what is asked for, and neither its answer nor what comes behind it."""
        try:
            self.is_interruptible = True
            came = getattr(self, request["do"])(request)
            self.is_interruptible = False
        except BaseException as error:
            self.is_interruptible = False
            common.fail(request, error)
        else:
            common.answer(request, came)

    def interrupted(self, _signal: int, _frame: Any) -> None:
        if self.is_interruptible:
            raise KeyboardInterrupt


def main() -> None:
    adapter = Adapter()
    signal.signal(signal.SIGINT, adapter.interrupted)
    # An interruption concerns the main thread: it makes the requests that can be cancelled, one at a time.
    of_main: "queue.Queue[Any]" = queue.Queue()

    def read() -> None:
        for request in common.requests():
            if request.get("cancellable"):
                of_main.put(request)
            else:
                threading.Thread(target=adapter.answer, args=(request,), daemon=True).start()
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        adapter.answer_interruptibly(of_main.get())


if __name__ == "__main__":
    sys.exit(main())
