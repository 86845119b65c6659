"""The parts of the Redis store that decide: URLs, keys, messages, the breaker, the queue of writes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.stores.breaker import Breaker
from adapters.stores.redis_layout import Announcement, Layout
from adapters.stores.redis_url import SCHEMES, RedisAddress, Tls, parse_redis_url
from adapters.stores.write_queue import Write, WriteQueue
from sidecar.ports import Invalidation

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


# ---------------------------------------------------------------- URLs
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", {"hosts": (("h", 6_379),)}),
        ("redis://h:7/3", {"hosts": (("h", 7),), "database": 3}),
        ("redis://h?db=4", {"hosts": (("h", 6_379),), "database": 4}),
        ("redis://[::1]:7", {"hosts": (("::1", 7),)}),
        ("redis://:p%40%23w@h", {"hosts": (("h", 6_379),), "password": "p@#w"}),
        ("redis://u:p:q@h", {"hosts": (("h", 6_379),), "user": "u", "password": "p:q"}),
        ("rediss://h", {"hosts": (("h", 6_379),), "tls": Tls()}),
        (
            "rediss://h?ca=/c.pem&cert=/d.pem&key=/k.pem&check_hostname=no",
            {"hosts": (("h", 6_379),), "tls": Tls("/c.pem", "/d.pem", "/k.pem", False)},
        ),
        ("unix:///run/redis.sock?db=2", {"path": "/run/redis.sock", "database": 2}),
        ("unix://u:p@/run/redis.sock", {"path": "/run/redis.sock", "user": "u", "password": "p"}),
        (
            "redis+sentinel://u:p@a,b:1/main/2?sentinel_user=s&sentinel_password=t",
            {
                "topology": "sentinel", "hosts": (("a", 26_379), ("b", 1)), "service": "main", "database": 2,
                "user": "u", "password": "p", "sentinel_user": "s", "sentinel_password": "t",
            },
        ),
        ("redis+cluster://a,b:1,[::1]:2", {"topology": "cluster", "hosts": (("a", 6_379), ("b", 1), ("::1", 2))}),
        ("rediss+cluster://a", {"topology": "cluster", "hosts": (("a", 6_379),), "tls": Tls()}),
    ],
)  # fmt: skip
def test_urls(url: str, expected: dict[str, Any]) -> None:
    assert parse_redis_url(url) == RedisAddress(**{"topology": "single"} | expected)


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://",
        "redis://h:0",
        "redis://h:70000",
        "redis://h:",
        "redis://h/x",
        "redis://h/1/2",
        "redis://h/123456",
        "redis://a,b",
        "redis://user@h",
        "redis://u:canary@x@h",
        "redis://u:p#canary@h",
        "redis://u:canary?x@h",
        "redis://h?canary=1",
        "redis://h?ca=/c.pem",
        "redis://h?db=1&db=2",
        "rediss://h?check_hostname=canary",
        "rediss://h?key=/k.pem",
        "unix://h/path",
        "unix://",
        "redis+sentinel://a",
        "redis+sentinel://a/b/c/d",
        "redis+cluster://a/1",
        "redis+cluster://a?db=1",
        "redis+cluster://" + ",".join(["a"] * 65),
        "redis://[::1",
    ],
)
def test_urls_that_mean_nothing_are_refused_without_quoting_them(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_redis_url(url)
    assert "canary" not in str(caught.value)


@given(st.sampled_from(SCHEMES), st.text(max_size=40))
def test_any_url_is_an_address_or_a_value_error(scheme: str, rest: str) -> None:
    try:
        address = parse_redis_url(f"{scheme}://{rest}")
    except ValueError:
        return
    assert address.hosts or address.path


def test_addresses_do_not_show_their_passwords() -> None:
    assert "canary" not in repr(parse_redis_url("redis://u:canary@h")) + str(parse_redis_url("redis://:canary@h"))


# ---------------------------------------------------------------- keys and messages
@given(st.tuples(NAMES, NAMES, NAMES), st.tuples(NAMES, NAMES, NAMES))
def test_other_names_have_other_keys(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    layout = Layout("p")
    assert (layout.record(one) == layout.record(other)) == (one == other)
    assert (layout.index(*one[:2]) == layout.index(*other[:2])) == (one[:2] == other[:2])
    assert layout.record(one) != layout.index(*one[:2])


@given(NAMES, NAMES, NAMES)
def test_a_record_and_its_index_share_a_slot(tenant: str, kind: str, key: str) -> None:
    def tag(name: str) -> str:
        return name[name.index("{") + 1 : name.index("}")]

    layout = Layout("p")
    assert tag(layout.record((tenant, kind, key))) == tag(layout.index(tenant, kind)) != ""


@given(NAMES, NAMES, NAMES)
def test_messages_come_back(tenant: str, kind: str, key: str) -> None:
    sent = Announcement("me", 3, Invalidation(tenant, kind, key))
    assert Announcement.from_bytes(sent.to_bytes()) == sent


@pytest.mark.parametrize(
    "data",
    [
        None, b"", b"{}", b"[]", b"5", b"\xff", b"[" * 5_000, json.dumps(["a", "1", "t", "k", "x"]).encode(),
        json.dumps(["a", True, "t", "k", "x"]).encode(), json.dumps(["a", 1, "t", "k"]).encode(),
        json.dumps(["a", 1, "t", "k", 5]).encode(), json.dumps(["a", 1, "t", "k", "x" * 20_000]).encode(),
    ],
)  # fmt: skip
def test_foreign_messages_are_nothing(data: object) -> None:
    assert Announcement.from_bytes(data) is None


# ---------------------------------------------------------------- the breaker
def test_the_breaker_opens_after_failures_in_a_row_and_probes_now_and_then() -> None:
    breaker = Breaker(failures=3, within_ms=1_000, probe_ms=100)
    for now_ms in (0, 10):
        breaker.failed(now_ms)
    breaker.succeeded()
    for now_ms in (20, 30):
        breaker.failed(now_ms)
    assert not breaker.probe_due(30)
    breaker.failed(40)
    assert breaker.open
    assert [now_ms for now_ms in range(40, 400, 20) if breaker.probe_due(now_ms)] == [140, 240, 340]
    breaker.succeeded()
    assert not breaker.open
    assert not breaker.probe_due(1_000)


def test_failures_far_apart_do_not_open_it() -> None:
    breaker = Breaker(failures=3, within_ms=1_000, probe_ms=100)
    for now_ms in range(0, 10_000, 600):
        breaker.failed(now_ms)
    assert not breaker.open


# ---------------------------------------------------------------- writes that wait
def write(key: str, value: bytes = b"x", expires_ms: float | None = None) -> Write:
    return Write(("t", "k", key), value, expires_ms)


def test_the_newest_write_of_a_name_is_kept_and_the_oldest_names_go_first() -> None:
    queue = WriteQueue(max_writes=3, max_bytes=100)
    for key in "abcad":
        queue.add(write(key, key.encode()))
    assert [kept.name[2] for kept in queue.living("t", "k", 0)] == ["c", "a", "d"]
    assert queue.dropped == 1
    queue.add(write("e", bytes(99)))
    assert [kept.name[2] for kept in queue.living("t", "k", 0)] == ["d", "e"]
    queue.add(write("f", bytes(101)))
    assert len(queue) == 0
    assert queue.dropped == 6


def test_a_write_whose_record_would_be_gone_is_not_shown() -> None:
    queue = WriteQueue()
    queue.add(write("a", expires_ms=100))
    assert queue.get(("t", "k", "a"), 99) is not None
    assert queue.get(("t", "k", "a"), 100) is None
    assert list(queue.living("t", "k", 100)) == []
    assert list(queue.living("t", "other", 0)) == []


def test_a_write_that_was_replaced_while_it_was_made_stays() -> None:
    queue = WriteQueue()
    queue.add(write("a", b"old"))
    old = queue.first()
    assert old is not None
    queue.add(write("a", b"new"))
    queue.made(old)
    new = queue.get(("t", "k", "a"), 0)
    assert new is not None
    assert new.value == b"new"
    queue.made(new)
    assert queue.first() is None


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 60)), max_size=60))
def test_the_queue_never_holds_more_than_it_may(writes: list[tuple[str, int]]) -> None:
    queue = WriteQueue(max_writes=4, max_bytes=100)
    for key, size in writes:
        queue.add(write(key, bytes(size)))
        kept = list(queue.living("t", "k", 0))
        assert len(kept) <= 4
        assert sum(len(one.value) for one in kept) <= 100
        assert kept[-1].name[2] == key
