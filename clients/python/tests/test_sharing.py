"""Readers that become writers, and writers that become readers."""

from __future__ import annotations

import pytest

import leasehold
from conftest import Make
from leasehold import Loss, Released
from servers import Server, eventually, raw


def fence(server: Server, name: str, owner: bytes) -> int:
    return int(raw(server, "LOCK.CHECK", name, owner) or 0)


def test_a_reader_alone_becomes_a_writer_by_a_new_fence(server: Server, make: Make, name: str) -> None:
    both = make(server).read_write(name, ttl=0.6)
    reader = both.read.acquire()
    before = reader.fence
    assert reader.upgrade() > before
    assert fence(server, name, reader.owner) == reader.fence > before
    assert both.read.try_acquire() is None
    # Its renewals and its release go by the new fence.
    end = reader._state.end
    eventually(lambda: reader._state.end > end, "it is renewed")
    assert reader.release() is Released.RELEASED
    assert raw(server, "LOCK.INFO", name) is None


def test_a_reader_among_others_is_refused_and_goes_on_reading(server: Server, make: Make, name: str) -> None:
    locks = make(server)
    one, two = locks.read(name, ttl=60).acquire(), locks.read(name, ttl=60).acquire()
    before = one.fence
    assert one.upgrade() is None
    assert (one.lost, one.fence) == (False, before)
    assert two.release() is Released.RELEASED
    assert one.upgrade() > before
    assert one.release() is Released.RELEASED


def test_a_writer_becomes_a_reader_and_lets_others_in(server: Server, make: Make, name: str) -> None:
    locks = make(server)
    writer = locks.read_write(name, ttl=60).write.acquire()
    assert locks.read(name).try_acquire() is None
    assert writer.downgrade() == writer.fence
    other = locks.read(name, ttl=60).try_acquire()
    assert other is not None
    assert writer.upgrade() is None
    assert [each.release() for each in (writer, other)] == [Released.RELEASED] * 2


def test_what_was_lost_is_neither(server: Server, make: Make, name: str) -> None:
    locks = make(server)
    writer = locks.write(name, ttl=60).acquire()
    raw(server, "DEL", name)
    with pytest.raises(leasehold.LockLost):
        writer.downgrade()
    assert writer.loss is Loss.TAKEN
    eventually(lambda: raw(server, "LOCK.INFO", name) is None, "the grant that nobody wants is given back")
    with pytest.raises(leasehold.LockLost):
        writer.upgrade()


def test_it_needs_the_module(plain_server: Server, make: Make, name: str) -> None:
    writer = make(plain_server).write(name, ttl=60).acquire()
    with pytest.raises(leasehold.NeedsModule):
        writer.downgrade()
    assert writer.release() is Released.RELEASED
