"""Which node of a cluster has which slot, as far as is known. Pure."""

from __future__ import annotations

from typing import Dict, List, Optional

from redis.crc import key_slot

from ._reply import Reply
from ._target import Address


class SlotMap:
    def __init__(self) -> None:
        self._nodes: Dict[int, Address] = {}

    def node_of(self, key: bytes) -> Optional[Address]:
        return self._nodes.get(slot_of(key))

    def moved(self, slot: int, to: Address) -> None:
        self._nodes[slot] = to

    def rename(self, node: Address, to: Address) -> None:
        self._nodes = {slot: to if its == node else its for slot, its in self._nodes.items()}

    def nodes(self) -> List[Address]:
        return list(dict.fromkeys(self._nodes.values()))

    def learn(self, reply: Reply, asked: Address) -> None:
        """The answer to CLUSTER SLOTS. A node that does not know its own name is called by that of who answered."""
        known: Dict[int, Address] = {}
        for entry in reply if isinstance(reply, list) else []:
            if not isinstance(entry, list) or len(entry) < 3 or not isinstance(entry[2], list):
                continue
            first, last, primary = entry[0], entry[1], entry[2]
            host, port = primary[0], primary[1]
            if isinstance(first, int) and isinstance(last, int) and isinstance(port, int):
                name = host.decode() if isinstance(host, bytes) and host not in (b"", b"?") else asked[0]
                known.update((slot, (name, port)) for slot in range(first, last + 1))
        if known:
            self._nodes = known


def slot_of(key: bytes) -> int:
    return int(key_slot(key))
