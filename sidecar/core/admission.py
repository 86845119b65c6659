"""Who may speak now, who waits, who is turned away. Pure: the caller keeps the clock and wakes those admitted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Ticket:
    """One request for ``places``; ``admitted`` turns true when they are taken. Equal only to itself."""

    places: int
    admitted: bool = False
    given_up: bool = False


@dataclass(slots=True)
class Admission:
    """``capacity`` places, and at most ``queue`` tickets waiting for them, first come first served."""

    capacity: int
    queue: int
    taken: int = 0
    waiting: deque[Ticket] = field(default_factory=deque)

    def ask(self, places: int) -> Ticket | None:
        """A ticket, admitted at once or waiting; None when the queue is full or it asks for more than there is."""
        if places > self.capacity:
            return None
        ticket = Ticket(places)
        if not self.waiting and self.taken + places <= self.capacity:
            ticket.admitted = True
            self.taken += places
            return ticket
        if len(self.waiting) >= self.queue:
            return None
        self.waiting.append(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Give places back, or stop waiting. Returns the tickets that are admitted now."""
        if ticket.given_up:
            return []
        ticket.given_up = True
        if ticket.admitted:
            self.taken -= ticket.places
        else:
            self.waiting.remove(ticket)
        admitted = []
        while self.waiting and self.taken + self.waiting[0].places <= self.capacity:
            nxt = self.waiting.popleft()
            nxt.admitted = True
            self.taken += nxt.places
            admitted.append(nxt)
        return admitted
