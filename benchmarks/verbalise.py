"""What reading numbers as words costs.

    python -m benchmarks.verbalise [--rounds 300]

CPU time, least of the rounds: a sentence without digits, one full of them in some languages, the first text of a
language (rules and names are read then), and a megabyte that means harm.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from segmenter.verbalise import LANGUAGES, verbalise

PLAIN = "This sentence has a hundred characters and not a single one of them is a digit or a sign of money at all."
FULL = {
    "en": "On 3 May 2024 at 10:30 the 5 kg cost $12.50.",
    "de": "Am 3. Mai 2024 um 10:30 Uhr kosteten 5 kg 12,50 €.",
    "fr": "Le 3 mai 2024 à 10h30, 5 kg coûtaient 12,50 €.",
    "zh": "2024年5月3日10:30，5公斤要12.50元。",
}
HOSTILE = {"digits": "7" * 1_000_000, "dots": "1." * 500_000, "signs": "-+%€" * 250_000}


def spent(call: Callable[[], object], rounds: int) -> float:
    """Seconds of CPU of one call, the least of these."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verbalise", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    for language in sorted(LANGUAGES):
        first = spent(partial(verbalise, "1 km", language), 1)
        print(f"first text, {language}: {first * 1e3:.0f} ms")
    print(f"100 characters without digits: {spent(lambda: verbalise(PLAIN, 'en'), rounds) * 1e6:.0f} us")
    for language, text in FULL.items():
        took = spent(partial(verbalise, text, language), rounds)
        print(f"date, time, weight and amount, {language}: {took * 1e6:.0f} us")
    for name, text in HOSTILE.items():
        print(f"1 MB of {name}: {spent(partial(verbalise, text, 'en'), 1):.1f} s")


if __name__ == "__main__":
    main()
