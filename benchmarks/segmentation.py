"""Runs the segmenter through a segmentation benchmark's runner and prints what it must hold.

    python -m benchmarks.segmentation RUNNER.py [CASES ...] [--cost] [--language auto] [--referee pysbd]

``RUNNER.py`` is the benchmark's script (also from SEGMENTATION_RUNNER): it has ``load``, ``evaluate`` and ``cost``.
``CASES`` are files or folders of cases; without any, the folder ``open`` beside the runner. The runner itself can use
this module too: ``--adapter benchmarks.segmentation:make``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol

from segmenter import SegmentOptions, SegmentStream, UnitSplitter


class Splitter(Protocol):
    """What the runner drives."""

    def feed(self, text: str) -> list[str]: ...

    def flush(self) -> list[str]: ...


class _Speakable:
    def __init__(self, options: SegmentOptions) -> None:
        self._stream = SegmentStream(options)

    def feed(self, text: str) -> list[str]:
        return [segment.spoken for segment in self._stream.feed(text) if segment.spoken]

    def flush(self) -> list[str]:
        return [segment.spoken for segment in self._stream.flush() if segment.spoken]


def options(lang: str, mode: str, config: dict[str, Any]) -> SegmentOptions:
    """The options of a case: sentences without an early first clause, or clauses."""
    clauses = mode == "clause"
    return SegmentOptions(
        granularity="clause" if clauses else "sentence",
        language=lang,
        first_by_clause=clauses,
        max_chars=config.get("max_chars", 300),
        starts_in_think=config.get("starts_in_think", False),
    )


def make(lang: str, mode: str, config: dict[str, Any]) -> Splitter:
    """The sidecar's rules: what a voice gets to say."""
    return _Speakable(options(lang, mode, config))


def make_auto(lang: str, mode: str, config: dict[str, Any]) -> Splitter:
    """The same, but the language is told from the text."""
    return _Speakable(options("auto", mode, config))


def make_pysbd(lang: str, mode: str, config: dict[str, Any]) -> Splitter:
    """The same with pysbd as the referee."""
    return _Speakable(replace(options(lang, mode, config), referee="pysbd"))


def make_vllm(lang: str, mode: str, config: dict[str, Any]) -> Splitter:
    """vLLM-Omni's rules: units of raw text."""
    return UnitSplitter("clause" if mode == "clause" else "sentence")


for cleaning in (make, make_auto, make_pysbd):
    vars(cleaning)["cleans"] = True  # what the runner asks of an adapter

ADAPTERS: dict[str, Callable[[str, str, dict[str, Any]], Splitter]] = {
    "make": make,
    "make_auto": make_auto,
    "make_pysbd": make_pysbd,
    "make_vllm": make_vllm,
}
_TREEBANK_LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "ru", "zh", "ko")
_PYSBD_LANGUAGES = ("en", "de", "fr", "es", "zh", "ja")


@dataclass(frozen=True)
class Row:
    """One figure of the table and whether it is where it must be."""

    figure: str
    bar: str
    value: str
    met: bool

    def __str__(self) -> str:
        return f"| {self.figure} | {self.bar} | {self.value} | {'yes' if self.met else 'NO'} |"


def load_runner(path: Path) -> ModuleType:
    """The benchmark's script as a module. Raises ``SystemExit`` if there is none."""
    spec = importlib.util.spec_from_file_location("segmentation_runner", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"no runner at {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["CASE_LIMIT"] = 20.0
    return module


def _f1(runner: ModuleType, adapter: Any, cases: list[Any]) -> float:
    value = runner.evaluate(adapter, cases, full_tok=False)["total"]["F1"]
    return 1.0 if value is None else float(value)


def quality(runner: ModuleType, adapter: Any, cases: list[Any]) -> Iterator[Row]:
    """The figures of the cases."""
    sentences = [case for case in cases if case.get("mode", "sentence") == "sentence"]
    clauses = [case for case in cases if case.get("mode") == "clause"]
    own = [case for case in sentences if not case["cat"].startswith("gold-")]
    if own:
        yield _at_least("sentence F1, replies and reports", 0.97, _f1(runner, adapter, own))
    for name, cats, languages, bar in (
        ("PUD", ("gold-pud",), _TREEBANK_LANGUAGES, 0.98),
        ("EWT", ("gold-ewt",), ("en",), 0.98),
        ("PUD and EWT", ("gold-pud", "gold-ewt"), _TREEBANK_LANGUAGES, 0.98),
        ("pysbd's rules", ("gold-pysbd",), _PYSBD_LANGUAGES, 0.88),
    ):
        for lang in languages:
            chosen = [case for case in sentences if case["cat"] in cats and case["lang"] == lang]
            if chosen:
                yield _at_least(f"{name}, {lang}", bar, _f1(runner, adapter, chosen))
    for name, cat in (("pysbd's rules", "gold-pysbd"), ("sentencex's tests", "gold-sentencex")):
        chosen = [case for case in sentences if case["cat"] == cat]
        if chosen:
            yield _at_least(f"{name}, all languages", 0.0, _f1(runner, adapter, chosen))
    yield from _whole(runner.evaluate(adapter, sentences))
    if clauses:
        result = runner.evaluate(adapter, clauses)["clause"]
        yield _at_least("first clause right", 0.9, result["first_hit"] / max(1, result["first_cases"]))
        yield _at_most("forbidden clause cuts", 0, result["forbidden_cut"])


def _whole(result: dict[str, Any]) -> Iterator[Row]:
    yield _at_least("sentence F1, all cases", 0.0, result["total"]["F1"])
    yield _at_least("all segments of a case right", 0.0, result["total"]["exact"])
    yield _at_most("inconsistent between tokenisations", 0, result["inconsistent_cases"])
    yield _at_most("errors and hangs", 0, result["errors"])
    spoken = result["spoken"]
    if spoken and spoken["cases"]:
        yield _at_least("whole spoken text right", 0.97, spoken["exact"] / spoken["cases"])
    yield _at_most("leaked speakable characters", 0, result["text"]["leak_chars"])
    ahead = result["lookahead"]
    if ahead["n"]:
        yield _at_most("look-ahead median, characters", 2, ahead["median"])
        yield _at_most("look-ahead p95, characters", 5, ahead["p95"])
    yield _at_most("segments over the limit", 0, result["length"]["too_long"])
    yield _at_most("words cut by the limit", 0, result["length"]["cut_word"])


def lost(runner: ModuleType, adapter: Any, cases: list[Any]) -> Row:
    """Lost characters, counted where the cases say what is to be said: elsewhere dropping an address is no loss."""
    told = [case for case in cases if case.get("spoken") is not None and case.get("mode") != "clause"]
    return _at_most(
        "lost speakable characters", 0, runner.evaluate(adapter, told, full_tok=False)["text"]["loss_chars"]
    )


def cost(runner: ModuleType, adapter: Any, sizes: tuple[int, ...]) -> Iterator[Row]:
    """The figures of time and memory."""
    for kind, result in runner.cost(adapter, sizes=sizes).items():
        last = result["rows"][max(result["rows"])]
        yield _at_most(f"growth exponent, {kind}", 1.1, result["growth"])
        yield _at_most(f"us a token of 4 characters, {kind}", 40, last["us_per_token"])
        yield _at_most(f"kept memory, kB, {kind}", 50, result["mem"]["kept_kB"])


def _at_least(figure: str, bar: float, value: float) -> Row:
    return Row(figure, f">= {bar:g}" if bar else "", f"{value:.3f}", value >= bar)


def _at_most(figure: str, bar: float, value: float | None) -> Row:
    return Row(figure, f"<= {bar:g}", "none" if value is None else f"{value:g}", value is not None and value <= bar)


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runner", type=Path, nargs="?", default=os.environ.get("SEGMENTATION_RUNNER"))
    parser.add_argument("cases", nargs="*", default=["open"])
    parser.add_argument("--adapter", choices=sorted(ADAPTERS), default="make")
    parser.add_argument("--cost", action="store_true", help="also time and memory, 1k to 100k tokens")
    parser.add_argument("--only-cost", action="store_true")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time, for a machine that others use too")
    arguments = parser.parse_args()
    if arguments.runner is None:
        parser.error("name the runner, or set SEGMENTATION_RUNNER")
    runner, adapter = load_runner(Path(arguments.runner)), ADAPTERS[arguments.adapter]
    if arguments.cpu_time:
        vars(runner)["time"] = SimpleNamespace(perf_counter=time.process_time)
    rows: list[Row] = []
    if not arguments.only_cost:
        cases = runner.load(arguments.cases)
        rows += [*quality(runner, adapter, cases), lost(runner, adapter, cases)]
    if arguments.cost or arguments.only_cost:
        rows += cost(runner, adapter, (1_000, 10_000, 100_000))
    sys.stdout.write("| figure | bar | here | met |\n|---|---|---|---|\n")
    sys.stdout.write("".join(f"{row}\n" for row in rows))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
