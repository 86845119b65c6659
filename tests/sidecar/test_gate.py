from __future__ import annotations

import contextlib
import gc
import hmac
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.faults import Forbidden, TooBusy, Unauthorized
from sidecar.gate import DEFAULT_SCOPES, SCOPES, Caller, Gate, parse_entry
from sidecar.redaction import Secret

KEY = "0123456789abcdefghijkl"
WRONG = "Bearer nope"


def test_without_keys_everybody_is_local_and_may_do_everything() -> None:
    gate = Gate()
    assert gate.open
    for header in (None, "", WRONG, "Basic x"):
        assert gate.authenticate(header, "1.2.3.4", 0) == Caller("local", SCOPES)


@pytest.mark.parametrize(
    ("entry", "tenant", "more"),
    [
        (KEY, "local", set()),
        (f"acme:{KEY}", "acme", set()),
        (f"acme+admin:{KEY}", "acme", {"admin"}),
        (f"acme+admin+voices:export:{KEY}", "acme", {"admin", "voices:export"}),
        (f"+admin:{KEY}", "local", {"admin"}),
    ],
)
def test_a_key_gives_its_tenant_and_scopes(entry: str, tenant: str, more: set[str]) -> None:
    gate = Gate([f"other:{KEY}x", entry])
    assert not gate.open
    caller = gate.authenticate(f"Bearer {KEY}", "1.2.3.4", 0)
    assert caller == Caller(tenant, DEFAULT_SCOPES | more)
    for scope in SCOPES:
        if scope in caller.scopes:
            caller.require(scope)
        else:
            with pytest.raises(Forbidden, match=scope):
                caller.require(scope)


def test_keys_may_come_as_secrets() -> None:
    assert Gate([Secret(f"acme:{KEY}")]).authenticate(f"Bearer {KEY}", "c", 0).tenant == "acme"


@pytest.mark.parametrize("header", ["bearer {}", "BEARER  {} ", "\tBearer {}"])
def test_the_scheme_may_be_written_as_clients_do(header: str) -> None:
    assert Gate([KEY]).authenticate(header.format(KEY), "c", 0).tenant == "local"


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", WRONG, f"Basic {KEY}", KEY, f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", f"Bearer a:{KEY}",
     f"Bearer {KEY} {KEY}", "Bearer " + "x" * 100_000, "Bearer \ud800", "Bearer é\0"],
)  # fmt: skip
def test_unknown_wrong_and_malformed_look_alike(header: str) -> None:
    gate = Gate([KEY, f"a:{KEY}2"])
    with pytest.raises(Unauthorized) as caught:
        gate.authenticate(header, "c", 0)
    assert caught.value.message == "the API key is not valid"
    assert caught.value.status == 401


@given(st.text(), st.text(alphabet=string.ascii_letters, min_size=1))
def test_no_other_text_opens(header: str, key: str) -> None:
    gate = Gate([key])
    if header.strip(" \t").partition(" ")[2].strip(" \t") != key:
        with pytest.raises(Unauthorized):
            gate.authenticate(header, "c", 0)
    assert gate.authenticate(f"Bearer {key}", "c", 0).tenant == "local"


@pytest.mark.parametrize(
    "entry",
    ["", ":", "a:", "with space", "com,ma", "é" * 30, "\n" + KEY, f"Acme:{KEY}", f"a b:{KEY}", f"{'a' * 65}:{KEY}",
     f"acme+root:{KEY}", f"acme+:{KEY}", f"-a:{KEY}", f":{KEY}", "k" * 513],
)  # fmt: skip
def test_bad_entries_are_refused_without_being_shown(entry: str) -> None:
    with pytest.raises(ValueError) as caught:
        Gate([entry])
    if len(entry) > 2:
        assert entry not in str(caught.value)
    assert KEY not in str(caught.value)


def test_one_key_has_one_owner() -> None:
    with pytest.raises(ValueError, match="twice"):
        Gate([f"a:{KEY}", f"b:{KEY}"])
    with pytest.raises(ValueError, match="more than"):
        Gate(f"{KEY}{n}" for n in range(1_001))


def test_keys_are_not_kept() -> None:
    key = "canary-" + KEY
    gate = Gate([f"acme:{key}"])
    assert gate.authenticate(f"Bearer {key}", "c", 0).tenant == "acme"

    def reachable(root: object) -> list[object]:
        found, todo = [], [root]
        seen: set[int] = set()
        while todo:
            item = todo.pop()
            if id(item) in seen or isinstance(item, type) or callable(item):
                continue
            seen.add(id(item))
            found.append(item)
            todo.extend(gc.get_referents(item))
        return found

    values = reachable(gate.__dict__)
    assert any(isinstance(value, bytes) and len(value) == 32 for value in values)
    assert not any(isinstance(value, str) and "canary" in value for value in values)
    assert not any(isinstance(value, bytes) and b"canary" in value for value in values)
    assert key not in repr(parse_entry(f"acme:{key}"))


def test_digests_differ_from_process_to_process() -> None:
    one, other = Gate([KEY]), Gate([KEY])
    assert one._callers[0][0] != other._callers[0][0]


def test_every_entry_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = hmac.compare_digest
    counts: list[int] = []

    def counting(a: bytes, b: bytes) -> bool:
        counts[-1] += 1
        return compare(a, b)

    gate = Gate([f"{KEY}{n}" for n in range(5)])
    monkeypatch.setattr("sidecar.gate.hmac.compare_digest", counting)
    for key in (f"{KEY}0", f"{KEY}4", KEY, "", "x" * 5_000):
        counts.append(0)
        with contextlib.suppress(Unauthorized):
            gate.authenticate(f"Bearer {key}", f"c{len(counts)}", 0)
    assert counts == [5, 5, 5, 5, 5]


# ---------------------------------------------------------------- guessing
def fail(gate: Gate, client: str, now_ms: float, header: str = WRONG) -> None:
    with pytest.raises(Unauthorized):
        gate.authenticate(header, client, now_ms)


def test_ten_failures_a_minute_and_no_more() -> None:
    gate = Gate([KEY])
    for n in range(10):
        fail(gate, "1.2.3.4", n * 1_000)
    for header in (WRONG, f"Bearer {KEY}", None):
        with pytest.raises(TooBusy) as caught:
            gate.authenticate(header, "1.2.3.4", 20_000)
        assert caught.value.retry_after_s == 40.0
        assert caught.value.status == 429
    assert gate.authenticate(f"Bearer {KEY}", "1.2.3.5", 20_000).tenant == "local"
    with pytest.raises(TooBusy):
        gate.authenticate(WRONG, "1.2.3.4", 59_999)
    assert gate.authenticate(f"Bearer {KEY}", "1.2.3.4", 60_000).tenant == "local"
    fail(gate, "1.2.3.4", 60_000)
    with pytest.raises(TooBusy) as caught:
        gate.authenticate(WRONG, "1.2.3.4", 60_000)
    assert caught.value.retry_after_s == 1.0


def test_a_missing_header_is_no_guess() -> None:
    gate = Gate([KEY])
    for _ in range(50):
        with pytest.raises(Unauthorized, match="is needed"):
            gate.authenticate(None, "c", 0)
    assert gate.authenticate(f"Bearer {KEY}", "c", 0).tenant == "local"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:1.2.3.4", "1.2.3.4", True),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.5", False),
        ("fe80::1%eth0", "fe80::1", True),
        ("", "unix", False),
    ],
)
def test_what_counts_as_one_client(one: str, other: str, same: bool) -> None:
    gate = Gate([KEY], max_failures=1)
    fail(gate, one, 0)
    if same:
        with pytest.raises(TooBusy):
            gate.authenticate(WRONG, other, 0)
    else:
        fail(gate, other, 0)


def test_the_table_of_guessers_is_bounded() -> None:
    gate = Gate([KEY], max_failures=2, max_clients=100)
    for n in range(1_000):
        fail(gate, f"client-{n}", 0)
        fail(gate, "busy", n * 60_000)
        assert len(gate._failures) <= 100
    fail(gate, "client-0", 0)
    fail(gate, "client-999", 0)
    with pytest.raises(TooBusy):
        gate.authenticate(WRONG, "client-999", 0)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.booleans()), max_size=80))
def test_never_more_failures_than_allowed_within_any_window(steps: list[tuple[int, bool]]) -> None:
    gate = Gate([KEY], max_failures=3, window_ms=30_000)
    now_ms = 0
    failures: list[int] = []
    for wait_ms, right in steps:
        now_ms += wait_ms
        recent = [t for t in failures if now_ms - t < 30_000]
        try:
            gate.authenticate(f"Bearer {KEY}" if right else WRONG, "c", now_ms)
            outcome = "in"
        except Unauthorized:
            outcome = "wrong"
            failures.append(now_ms)
        except TooBusy:
            outcome = "busy"
        assert outcome == ("busy" if len(recent) >= 3 else "in" if right else "wrong")
