"""Owners chosen by the program, locks that are left held and gone on with, and leases that are lengthened."""

from __future__ import annotations

import pytest

import leasehold
from conftest import Make, told
from leasehold import Detached, Loss, Released
from servers import Server, eventually, raw


def test_a_lock_that_is_left_held_is_gone_on_with_by_its_text(server: Server, make: Make, name: str) -> None:
    lease = make(server, prefix="lock:").acquire(name, ttl=60)
    detached = lease.detach()
    assert lease.loss is Loss.DETACHED
    assert lease.release() is Released.DETACHED
    assert str(detached) == f"leasehold:lock%3A{name}:{lease.owner.decode().replace(':', '%3A')}:{lease.fence}"

    locks = make(server, prefix="lock:")
    assert locks.try_acquire(name) is None
    adopted = locks.adopt(str(detached), ttl=0.3)
    assert (adopted.name, adopted.fence, adopted.owner) == (name, lease.fence, lease.owner)
    deadline = raw(server, "PTTL", f"lock:{name}")
    assert deadline <= 300
    end = adopted._state.end
    eventually(lambda: adopted._state.end > end, "it is renewed")
    assert adopted.release() is Released.RELEASED
    assert server.holder(f"lock:{name}") is None


def test_a_lock_that_was_lost_meanwhile_is_not_gone_on_with(server: Server, make: Make, name: str) -> None:
    locks = make(server)
    detached = locks.acquire(name, ttl=60).detach()
    raw(server, "DEL", name)
    with pytest.raises(leasehold.LockLost) as lost:
        locks.adopt(detached)
    assert lost.value.loss is Loss.TAKEN
    assert server.holder(name) is None


def test_whoever_goes_on_with_a_lock_is_told_of_its_loss(server: Server, make: Make, name: str) -> None:
    locks = make(server)
    adopted = locks.adopt(locks.acquire(name, ttl=60).detach(), ttl=0.5)
    raw(server, "DEL", name)
    eventually(lambda: told(adopted), "it is told")
    assert adopted.loss is Loss.TAKEN


def test_it_works_without_the_module(plain_server: Server, make: Make, name: str) -> None:
    locks = make(plain_server)
    lease = locks.acquire(name, ttl=60)
    adopted = locks.adopt(str(lease.detach()))
    assert adopted.fence == lease.fence
    assert adopted.release() is Released.RELEASED


def test_an_owner_of_the_programs_choice_gets_its_grant_again(server: Server, make: Make, name: str) -> None:
    first = make(server).acquire(name, ttl=60, owner="worker-7")
    again = make(server).try_acquire(name, ttl=60, owner="worker-7")
    assert (again.owner, again.fence) == (b"worker-7", first.fence)
    assert make(server).try_acquire(name, owner="worker-8") is None
    for wrong in ("", "*", "x" * 256):
        with pytest.raises(leasehold.SettingError, match="owner: it must be from 1 to 255 bytes long"):
            make(server).acquire(name, owner=wrong)


def test_a_lease_is_lengthened_by_what_is_left_and_more(server: Server, make: Make, name: str) -> None:
    lease = make(server).acquire(name, ttl=20, renew=False)
    assert lease.extend_by(30)
    assert 49 < lease.valid_for() <= 50
    assert 49_000 < raw(server, "PTTL", name) <= 50_000
    raw(server, "DEL", name)
    assert not lease.extend_by(30)


def test_the_text_of_a_lock_reads_as_itself() -> None:
    detached = Detached((b"a:b,c %", b"\x00\xff"), "wähler:1".encode(), 17)
    assert str(detached) == "leasehold:a%3Ab%2Cc%20%25,%00%FF:w%C3%A4hler%3A1:17"
    assert Detached.parse(str(detached)) == detached
    assert str(Detached.parse("leasehold:order~7.-_:worker-1:1763942400000000")) == (
        "leasehold:order~7.-_:worker-1:1763942400000000"
    )
    for wrong in ("", "leasehold:a:b", "leasehold:a::1", "other:a:b:1", "leasehold:a%:b:1", "leasehold:a:b:x"):
        with pytest.raises(leasehold.SettingError):
            Detached.parse(wrong)
    with pytest.raises(leasehold.SettingError):
        Detached.parse("leasehold:a:b:1:2")
