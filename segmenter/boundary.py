"""Where a sentence or a clause may end.

All questions get one of three answers: a cut position (> 0), ``NO``, or ``WAIT`` for more text. An answer other than
``WAIT`` never changes when more text arrives: it looks only at what is there and asks for what it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from dataclasses import dataclass

from segmenter import stops
from segmenter.languages import Language
from segmenter.marks import (
    BULLETS,
    CLOSERS,
    DASHES,
    END_MARKS,
    NO,
    QUOTES,
    SCRIPT_CLAUSE_MARKS,
    SCRIPT_MARKS,
    WAIT,
    begun_word,
    next_word,
    tokens_before,
)

_RUN_LIMIT_CHARS = 40
_RUN = re.compile(f"[{END_MARKS}]{{1,{_RUN_LIMIT_CHARS}}}|[:;]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_HAN_KANA = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_SPEAKER = re.compile(r"[他她它我你您们]|[^\s，。！？…；“”「」]{0,6}[说說问問道喊答叫嚷吼]")
_NO_SPEAKER = re.compile(r"[^\s，。！？…；“”「」]{7}|[^\s，。！？…；“”「」]{0,6}[\s，。！？…；“”「」]")
_PARTICLE = re.compile(r"[とはがをもにのでや]|って|なんて|という|라|이라|하고")
_AFTER_SPACED_STOP = re.compile(r"\.\s?$")
_PRONOUN_I = ("I'", "I’")


@dataclass(slots=True)
class Candidate:
    """An end mark at ``text[at]``; ``text`` begins with the sentence.

    ``expects``: the closing marks of the quotes and brackets still open, innermost last. ``speaks``: tells the
    language. ``referee``: who is asked where the lists do not know. ``names``: where code spans begin, which need no
    capital. ``final``: nothing follows ``text``. ``chatty``: the writer does not use capitals.
    """

    text: str
    at: int
    expects: str
    speaks: Callable[[], Language]
    referee: stops.Referee | None
    names: Set[int]
    final: bool
    chatty: bool

    @property
    def language(self) -> Language:
        """The language of the sentence; told from its text where it is needed."""
        return self.speaks()


def run_end(text: str, at: int) -> int:
    """Position behind the run of end marks at ``text[at]``."""
    run = _RUN.match(text, at)
    return run.end() if run else at + 1


def is_script_end(text: str, at: int) -> bool:
    """Whether the ":" or ";" at ``text[at]`` is the full stop of Armenian or the question mark of Greek."""
    before = text[at - 1 : at]
    return ("\u0530" <= before <= "\u058f") if text[at] == ":" else ("\u0370" <= before <= "\u03ff" or before == "ώ")


def sentence_end(mark: Candidate) -> int:
    """The position behind the marks and closers that belong to the sentence, ``NO`` or ``WAIT``."""
    text, at, final = mark.text, mark.at, mark.final
    run = _RUN.match(text, at)
    if run is None:
        return NO
    end, depth = _behind_closers(text, run.end(), mark.expects)
    if end == len(text):
        return end if final else WAIT
    if text[end] == " " and depth.endswith("»"):
        if end + 1 == len(text):
            return end if final else WAIT
        if text[end + 1] == "»":
            end, depth = end + 2, depth[:-1]
            if end == len(text):
                return end if final else WAIT
    if depth:
        return NO
    if text[end] in '"“':
        if end + 1 == len(text):
            return end + 1 if final else WAIT
        if text[end + 1] == " ":
            end += 1
    following, closers = text[end], text[run.end() : end]
    if any(char in SCRIPT_MARKS for char in run[0]):
        return _script_end(text, following, closers, end, final=final)
    if following != " ":
        return _end_without_blank(mark, run[0], closers, end)
    if end + 1 == len(text):
        return end if final else WAIT
    return _end_before(mark, run[0], closers, end)


def _behind_closers(text: str, end: int, depth: str) -> tuple[int, str]:
    """Position behind the closing marks at ``end``, and what stays open."""
    limit = min(len(text), end + _RUN_LIMIT_CHARS)
    while end < limit:
        char = text[end]
        if char in depth:
            depth = depth[: depth.rindex(char)]
        elif char == "”" and depth.endswith("“"):
            depth = depth[:-1]
        elif char not in CLOSERS:
            break
        end += 1
    return end, depth


def _script_end(text: str, following: str, closers: str, end: int, *, final: bool) -> int:
    if following in "，、,;；:：）)」』”" or following in DASHES or (closers and following in SCRIPT_MARKS):
        return NO
    if closers:
        if not final and end + 2 > len(text):
            return WAIT
        if _PARTICLE.match(text, end) and closers[-1] in '」』"”）)':
            return NO
        if text[0] in '“「『"«':
            spoken = _SPEAKER.match(text, end)
            if spoken or (_HAN_KANA.match(following) and not final and not _NO_SPEAKER.match(text, end)):
                return NO if spoken else WAIT
    return _behind_blanks(text, end, final=final)


def _behind_blanks(text: str, end: int, *, final: bool) -> int:
    """``end``, but not before all the white space behind it has been seen: it leaves with the segment."""
    return WAIT if text[end:] == " " and not final else end


def _end_without_blank(mark: Candidate, run: str, closers: str, end: int) -> int:
    """The text goes on right behind the mark: mostly a number, a name or an address, sometimes a lost blank."""
    text, at = mark.text, mark.at
    following = text[end]
    if _HAN_KANA.match(following):
        before = text[at - 1] if at else ""
        if "…" in run or closers or before.isdigit():
            return NO
        return NO if run == "." and stops.is_abbreviation(text, at, mark.language) else end
    if closers or len(run) > 3 or not following.isupper() or at < 2:
        return NO
    token, _ = tokens_before(text, at)
    plain = token.isalpha() and len(token) > 1 and (token.islower() or token.istitle())
    if not plain and not (token.replace(",", "").isdigit() and len(token) > 2):
        return NO
    word = next_word(text, end, final=mark.final)
    if word is None:
        return WAIT
    bare = word.rstrip(".'’")
    return end if bare in mark.language.starters or mark.language.is_honorific(bare.lower()) else NO


def _end_before(mark: Candidate, run: str, closers: str, end: int) -> int:
    """The mark is followed by a blank and at least one more character."""
    text, at = mark.text, mark.at
    follower = text[end + 1]
    if follower == "," and end + 2 == len(text) and not mark.final:
        return WAIT
    if follower == "," and text.startswith(",,", end + 1):
        follower = "„"
    if follower in END_MARKS or follower in ",;:" or follower in SCRIPT_CLAUSE_MARKS:
        return NO
    if follower in DASHES:
        listed = run == "." and not closers and stops.is_abbreviation(text, at, mark.language)
        return NO if listed else _end_before_dash(text, end, final=mark.final)
    quoted = any(char in QUOTES for char in closers)
    asks = "!" in run or "?" in run or run in ":;"
    if follower in BULLETS:
        return end
    if follower.islower() and end + 1 not in mark.names:
        return _end_before_lower(mark, run, closers, end)
    if len(run) > 1 and text[at - 1 : at] in ("[", "(") and follower in "([":
        return NO
    if asks or quoted:
        return end
    if len(run) > 1 or "…" in run or _AFTER_SPACED_STOP.search(text, max(0, at - 2), at):
        return _end_of_ellipsis(mark, end)
    lang = mark.language
    if stops.follows_number_sign(follower):
        return NO if stops.is_before_number(text, at, end, lang) else end
    if follower in "([" and stops.takes_note(text, at, lang):
        return NO
    verdict = stops.full_stop(text, at, end, lang, mark.referee, final=mark.final)
    return NO if verdict > 0 and closers and stops.is_abbreviation(text, at, lang) else verdict


def _end_before_dash(text: str, end: int, *, final: bool) -> int:
    """ "— said he" goes on, "- Next" (a dash that opens a line of speech) does not."""
    if end + 3 >= len(text) and not final:
        return WAIT
    rest = text[end + 2 : end + 4].lstrip()
    return end if rest[:1].isupper() or rest[:1].isdigit() else NO


def _end_before_lower(mark: Candidate, run: str, closers: str, end: int) -> int:
    """A small letter follows: the sentence goes on, unless the writer writes so or the word has a capital inside."""
    text, at = mark.text, mark.at
    quoted = any(char in QUOTES for char in closers)
    begun = begun_word(text, end + 1)
    if mark.chatty and not quoted and "…" not in run and ".." not in run:
        token, _ = tokens_before(text, at)
        plain = token.isdigit() or (token.isalpha() and (len(token) > 1 or run[0] != "."))
        return end if plain and not mark.language.is_abbreviation(token) else NO
    if run in ":;" or (run == "." and not closers and stops.is_plain_word(text, at, mark.speaks)):
        return end
    if not begun[1:2]:
        return WAIT if end + 1 + len(begun) == len(text) and not mark.final else NO
    if not begun[1].isupper() or quoted:
        return NO
    return NO if stops.is_abbreviation(text, at, mark.language) else end


def _end_of_ellipsis(mark: Candidate, end: int) -> int:
    begun = begun_word(mark.text, end + 1)
    if not begun:
        return NO
    if end + 1 + len(begun) == len(mark.text) and not mark.final and len(begun) < 3:
        return WAIT
    return NO if begun == "I" or begun.startswith(_PRONOUN_I) else end


def clause_end(text: str, at: int, *, final: bool) -> int:
    """Whether a clause ends with the mark at ``text[at]``, outside of quotes and brackets; answers as above."""
    mark = text[at]
    end = at + 1
    if mark == "、" and not _KANA.match(text[at - 1 : at]):
        return NO
    if mark in SCRIPT_CLAUSE_MARKS + "、":
        if end == len(text):
            return end if final else WAIT
        if text[end].isdigit() and at and text[at - 1].isdigit():
            return NO
        return _behind_blanks(text, end + (text[end] in "”」』"), final=final)
    while end < len(text) and text[end] in "\"'”’»":
        end += 1
    if end + 1 >= len(text):
        return NO if final else (WAIT if end == len(text) or text[end] == " " else NO)
    if text[end] != " " or (mark in "—–" and text[at - 1 : at] != " "):
        return NO
    token, _ = tokens_before(text, at)
    follower = text[end + 1]
    if mark == "," and ((token.endswith(".") and token.lower() not in ("etc.", "usw.", "ecc.")) or follower.isdigit()):
        return NO
    if mark == "," and token[:1].isupper() and follower.isupper():
        return NO
    return end


def is_safe_end(text: str, at: int, marks: str, lang: Language) -> bool:
    """Whether the end mark at ``text[at]``, last so far, surely ends a sentence although nothing follows yet."""
    if marks[:1] != "." or len(marks.rstrip("\"'”’»)]")) > 1:
        return marks[:1] not in ".…" and bool(marks)
    token = tokens_before(text, at)[0]
    return len(token) > 1 and token.isalpha() and not stops.is_abbreviation(text, at, lang)


def is_safe_word_end(text: str, cut: int) -> bool:
    """Whether a pause between ``text[:cut]`` and the next word cannot tear a number, name or abbreviation apart."""
    last = text[:cut].rstrip()[-1:]
    return last.isalpha() or last in END_MARKS + '"”’»)' if last != "." else False
