"""What both adapters of the package for Python have in common."""

import json
import sys
import threading
from pathlib import Path
from typing import Any, Dict

# The package as it is in this repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "python" / "src"))

from leasehold import errors  # noqa: E402
from leasehold.outcomes import Loss  # noqa: E402

_writing = threading.Lock()

# In seconds there, in milliseconds in the protocol.
DURATIONS = ("ttl", "wait", "response", "within", "unreachable_after", "slice", "hold_at_least", "ephemeral", "replicas_within")

KINDS = (
    (errors.Busy, "busy"),
    (errors.Unanswered, "unanswered"),
    (errors.Unreachable, "unreachable"),
    (errors.LockLost, "lost"),
    (errors.Closed, "closed"),
    (errors.TooFewReplicas, "too few replicas"),
    (errors.SettingError, "setting"),
    (errors.NotPermitted, "not permitted"),
    (errors.WrongPassword, "wrong password"),
    (errors.OutOfMemory, "out of memory"),
    (errors.ReadOnly, "read only"),
    (errors.QueueFull, "queue full"),
    (errors.WrongType, "wrong type"),
    (errors.NeedsModule, "needs the module"),
    (errors.Refused, "refused"),
)

LOSSES = {
    Loss.EXPIRED: "expired",
    Loss.TAKEN: "taken",
    Loss.RELEASED: "released",
    Loss.DETACHED: "released",
    Loss.CLOSED: "closed",
    Loss.FORKED: "forked",
}


class WorkError(Exception):
    """What the work raises when it is told to."""


def write(line: Dict[str, Any]) -> None:
    text = json.dumps(line) + "\n"
    with _writing:
        sys.stdout.write(text)
        sys.stdout.flush()


def answer(request: Dict[str, Any], ok: Any) -> None:
    write({"id": request["id"], "ok": ok})


def fail(request: Dict[str, Any], error: BaseException) -> None:
    write({"id": request["id"], "error": trouble(error)})


def trouble(error: BaseException) -> Dict[str, str]:
    kinds = [kind for cls, kind in KINDS if isinstance(error, cls)]
    if isinstance(error, WorkError):
        kinds = ["work"]
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "CancelledError":
        kinds = ["cancelled"]
    kind = kinds[0] if kinds else f"not of the package: {type(error).__name__}"
    return {"kind": kind, "code": getattr(error, "code", ""), "text": str(error)}


def seconds(value: Any) -> Any:
    return value / 1000 if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def in_seconds(options: Dict[str, Any]) -> Dict[str, Any]:
    return {name: seconds(value) if name in DURATIONS else value for name, value in options.items()}


def name_of(request: Dict[str, Any]) -> Any:
    return request["name"] if "name" in request else bytes.fromhex(request["name_hex"])


def lock_of(locks: Any, request: Dict[str, Any]) -> Any:
    """The lock that a request is about, with its options."""
    names = ("ttl", "wait", "renew", "hold_at_least", "owner", "ephemeral", "replicas", "replicas_within")
    options = in_seconds({name: request[name] for name in names if name in request})
    if not isinstance(options.get("renew", True), bool):
        options["renew"] = seconds(options["renew"])
    name, mode = name_of(request), request.get("mode", "lock")
    if "also" in request:
        return locks.several([name, *request["also"]], **options)
    if mode == "semaphore":
        return locks.semaphore(name, request["permits"], **options)
    return getattr(locks, mode)(name, **options)


def client_of(redis: Any, sentinel: Any, cluster_node: Any, request: Dict[str, Any]) -> Any:
    """The client of redis-py for a place. It connects to nothing itself."""
    if "cluster" in request:
        host, port = _address(request["cluster"][0])
        return redis.RedisCluster(startup_nodes=[cluster_node(host, port)])
    if "sentinel" in request:
        urls = request["sentinel"]["urls"]
        return sentinel([_address(url) for url in urls]).master_for(request["sentinel"]["service"])
    if "quorum" in request:
        return [redis.Redis.from_url(url) for url in request["quorum"]]
    encrypted = request["url"].startswith("rediss")
    files = {"ssl_ca_certs": "ca", "ssl_certfile": "certificate", "ssl_keyfile": "key"}
    tls = {option: request[name] for option, name in files.items() if encrypted and name in request}
    return redis.Redis.from_url(request["url"], **tls)


def _address(url: str) -> Any:
    host, port = url.split("//")[1].split(":")
    return host, int(port)


def held(lease: Any) -> Dict[str, Any]:
    return {
        "held": True,
        "fence": str(lease.fence),
        "owner": lease.owner.decode(),
        "valid_for": int(lease.valid_for() * 1000),
    }


def state(lease: Any) -> Dict[str, Any]:
    loss = lease.loss
    return {"valid_for": int(lease.valid_for() * 1000), "loss": None if loss is None else LOSSES[loss]}


def info(found: Any) -> Any:
    if found is None:
        return None
    return {
        "holder": found.owner.decode(errors="replace"),
        "fence": str(found.fence),
        "holders": found.holders,
        "waiters": found.waiters,
    }


def reply(came: Any) -> Any:
    if isinstance(came, list):
        return [reply(each) for each in came]
    return came.decode(errors="replace") if isinstance(came, bytes) else came


def text(name: bytes) -> str:
    return name.decode(errors="replace")


def holders(found: Any) -> Any:
    return [{"owner": text(each.owner), "fence": str(each.fence)} for each in found]


def waiters(found: Any) -> Any:
    return [{"owner": text(each.owner)} for each in found]


def top(found: Any) -> Any:
    return [{"name": text(each.name), "waiters": each.waits, "refused": each.refused} for each in found]


def log(found: Any) -> Any:
    return [{"event": each.event, "name": text(each.name), "owner": text(each.owner)} for each in found]


def step(event: Any) -> None:
    name = event.name if isinstance(event.name, str) else text(event.name)
    write({"event": "step", "step": event.step, "name": name, "fence": str(event.fence)})


def led(observer: str, found: Any) -> None:
    who = leader(found) or {"candidate": None, "fence": None}
    write({"event": "leader", "observer": observer, **who})


def leader(found: Any) -> Any:
    return None if found is None else {"candidate": found.candidate, "fence": str(found.fence)}


def hold_everything(duration: float) -> None:
    """Keeps the lock of the interpreter: no other thread runs meanwhile."""
    import ctypes

    ctypes.PyDLL(None).usleep(int(duration * 1000))


def requests() -> Any:
    for line in sys.stdin:
        yield json.loads(line)
