"""Who may speak: never more than there are places, nobody overtakes, nobody is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.admission import Admission, Ticket


def test_places_then_the_queue_then_no() -> None:
    desk = Admission(capacity=2, queue=1)
    first, second, third, fourth = (desk.ask(1) for _ in range(4))
    assert first is not None
    assert first.admitted
    assert second is not None
    assert second.admitted
    assert third is not None
    assert not third.admitted
    assert fourth is None
    assert desk.leave(first) == [third]
    assert third.admitted
    assert desk.leave(first) == [], "places are given back once"
    assert desk.taken == 2


def test_more_places_than_there_are_is_refused_at_once() -> None:
    assert Admission(capacity=2, queue=5).ask(3) is None


def test_giving_up_frees_those_behind() -> None:
    desk = Admission(capacity=2, queue=5)
    one = desk.ask(1)
    big, small = desk.ask(2), desk.ask(1)
    assert one is not None
    assert big is not None
    assert small is not None
    assert not small.admitted, "a small one does not overtake"
    assert desk.leave(big) == [small]


def test_the_one_that_gives_up_is_the_one_that_goes() -> None:
    desk = Admission(capacity=1, queue=5)
    one, second, third = desk.ask(1), desk.ask(1), desk.ask(1)
    assert one is not None
    assert second is not None
    assert third is not None
    assert desk.leave(third) == []
    assert desk.leave(one) == [second]


@given(st.integers(1, 5), st.integers(0, 4), st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=60))
def test_laws(capacity: int, queue: int, steps: list[tuple[bool, int]]) -> None:
    desk = Admission(capacity, queue)
    living: list[Ticket] = []
    order: list[Ticket] = []
    admitted: list[Ticket] = []
    for asks, number in steps:
        if asks:
            ticket = desk.ask(number)
            if ticket is not None:
                living.append(ticket)
                order.append(ticket)
                if ticket.admitted:
                    admitted.append(ticket)
        elif living:
            leaving = living.pop(number % len(living))
            if not leaving.admitted:
                order.remove(leaving)
            admitted += desk.leave(leaving)
        assert desk.taken == sum(t.places for t in living if t.admitted) <= capacity
        assert len(desk.waiting) <= queue
        assert [id(t) for t in admitted] == [id(t) for t in order[: len(admitted)]], "first come, first served"
    for ticket in list(living):
        desk.leave(ticket)
    assert desk.taken == 0
    assert not desk.waiting
