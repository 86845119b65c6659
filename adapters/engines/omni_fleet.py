"""Which of several servers speaks next, and when one that failed is asked again. No socket, no clock."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

_MAX_DOUBLINGS = 30


@dataclass(slots=True)
class _Server:
    up: bool = False
    failures: int = 0
    check_at_ms: float = 0.0
    active: int = 0
    last_turn: int = 0


class Fleet:
    """A circuit breaker and a load count for each of ``count`` servers. All begin as down, to be checked at once.

    A server that fails is down until a health check finds it well; each further failure doubles the pause before that
    check. Only an utterance that was spoken to its end makes the pauses short again: a server that looks well but
    breaks every request does not stay in the way. ``chance`` gives numbers in [0, 1).
    """

    def __init__(
        self,
        count: int,
        *,
        check_every_ms: float,
        back_off_ms: float,
        back_off_max_ms: float,
        chance: Callable[[], float],
    ) -> None:
        self._servers = [_Server() for _ in range(count)]
        self._check_every_ms = check_every_ms
        self._back_off_ms = back_off_ms
        self._back_off_max_ms = back_off_max_ms
        self._chance = chance
        self._turn = 0

    def up(self, server: int) -> bool:
        """True while it may be asked to speak."""
        return self._servers[server].up

    @property
    def any_up(self) -> bool:
        """True if somebody can speak."""
        return any(server.up for server in self._servers)

    def active(self, server: int) -> int:
        """Utterances it speaks now."""
        return self._servers[server].active

    def choose(self, able: Callable[[int], bool], avoid: Collection[int] = ()) -> int | None:
        """The least busy server that is up and ``able``; among equals the one whose last turn is longest ago.

        One of ``avoid`` only if there is no other. None if there is none.
        """
        fit = [number for number, server in enumerate(self._servers) if server.up and able(number)]
        fit = [number for number in fit if number not in avoid] or fit
        if not fit:
            return None
        return min(fit, key=lambda number: (self._servers[number].active, self._servers[number].last_turn, number))

    def begun(self, server: int) -> None:
        """It was asked to speak."""
        self._turn += 1
        self._servers[server].active += 1
        self._servers[server].last_turn = self._turn

    def over(self, server: int, *, served: bool = False) -> None:
        """That utterance is over there; ``served``: spoken to its end."""
        self._servers[server].active -= 1
        if served:
            self._servers[server].failures = 0

    def failed(self, server: int, now_ms: float) -> None:
        """It could not be reached, broke off or fell silent."""
        state = self._servers[server]
        pause_ms = min(self._back_off_ms * 2.0 ** min(state.failures, _MAX_DOUBLINGS), self._back_off_max_ms)
        state.up = False
        state.failures += 1
        state.check_at_ms = now_ms + pause_ms * (1.0 - 0.5 * self._chance())

    def well(self, server: int, now_ms: float) -> None:
        """A health check found nothing wrong."""
        state = self._servers[server]
        state.up = True
        state.check_at_ms = now_ms + self._check_every_ms * (1.0 - 0.5 * self._chance())

    def check_in_ms(self, server: int, now_ms: float) -> float:
        """How long until it is to be checked next; not below 0."""
        return max(0.0, self._servers[server].check_at_ms - now_ms)
