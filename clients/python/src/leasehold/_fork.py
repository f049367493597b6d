"""What a child process must forget, because it is its parent's: connections, leases, threads. With its connections the
child would mix up answers, and keep requests in the queues of servers; what the parent holds is not renewed there."""

from __future__ import annotations

import os
import weakref
from typing import Any

OF_PARENTS: list[object] = []  # What a child leaves as it is, for as long as it lives

_inherited: weakref.WeakSet[Any] = weakref.WeakSet()


def remember(what: Any) -> None:
    _inherited.add(what)


def _forget_all() -> None:
    inherited = list(_inherited)
    _inherited.clear()
    for what in inherited:
        what.forget_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
