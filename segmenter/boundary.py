"""Where a sentence or a clause may end, for every language at once.

All questions get one of three answers: a cut position (> 0), ``NO``, or ``WAIT`` for more text. An answer other than
``WAIT`` never changes when more text arrives: it looks only at what is there and asks for what it lacks.
"""

from __future__ import annotations

import re

from segmenter import words

NO = 0
WAIT = -1

SCRIPT_MARKS = "。！？｡।॥؟۔։።။។"
"""End marks that need no blank behind them."""

END_MARKS = ".!?…" + SCRIPT_MARKS
CLAUSE_MARKS = ",;:—–"
SCRIPT_CLAUSE_MARKS = "，；：،؛"

_CLOSERS = "'”’)]}』」】）›»"
_QUOTES = set("\"'”’»“«›』」")
_RUN_LIMIT_CHARS = 40
_WORD_LIMIT_CHARS = 24
_LOOK_BACK_CHARS = 48

_RUN = re.compile(f"[{END_MARKS}]{{1,{_RUN_LIMIT_CHARS}}}")
_LAST_TOKENS = re.compile(r"(?:(\S*)\s)?(\S*)$")
_NEXT_WORD = re.compile(rf"[\"'“„«»(\[¿¡‘]{{0,3}}([\w'’.-]{{0,{_WORD_LIMIT_CHARS}}})")
_LETTERS_DOTTED = re.compile(r"(?:[^\W\d_]{1,4}\.)+[^\W\d_]{1,3}")
_LAST_PART = re.compile(r"^.*[–/'’-](?=.)")
_ROMAN = re.compile(r"[IVXLC]+")
_KANA = re.compile(r"[\u3040-\u30ff]")
_HAN_KANA = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_QUOTE_GOES_ON = re.compile(r"[他她它我你您们と]|って")
_OPENERS = "\"'“„«‘(（[{「『【¿¡»›‹*`"
_DASHES = "-–—"


def sentence_end(text: str, at: int, expects: str, *, final: bool, chatty: bool) -> int:
    """Whether a sentence ends with the end mark at ``text[at]``.

    ``text`` begins with the sentence. ``expects`` are the closing marks of the quotes and brackets still open,
    innermost last. ``final``: nothing follows ``text``. ``chatty``: the writer does not use capitals. Returns the
    position behind the marks and closers that belong to the sentence, ``NO`` or ``WAIT``.
    """
    run = _RUN.match(text, at)
    if run is None:
        return NO
    end = run.end()
    depth = expects
    while end < len(text) and end - at < 2 * _RUN_LIMIT_CHARS:
        char = text[end]
        if char in depth:
            depth = depth[: depth.rindex(char)]
        elif char == "”" and depth.endswith("“"):
            depth = depth[:-1]
        elif char not in _CLOSERS:
            break
        end += 1
    if end == len(text):
        return end if final else WAIT
    following = text[end]
    if depth:
        return NO
    if following == '"':
        if end + 1 == len(text):
            return end + 1 if final else WAIT
        if text[end + 1] == " ":
            end += 1
            following = " "
    closers = text[run.end() : end]
    if any(mark in SCRIPT_MARKS for mark in run[0]):
        return _script_end(text, following, closers, end, final=final)
    if following != " ":
        return _end_without_blank(text, at, run[0], closers, end, final=final)
    if end + 1 == len(text):
        return end if final else WAIT
    return _end_before(text, at, run[0], closers, end, final=final, chatty=chatty)


def _script_end(text: str, following: str, closers: str, end: int, *, final: bool) -> int:
    if following in "，、,;；:：）)」』”" or following in _DASHES:
        return NO
    if closers and text[0] in '“「『"«':
        if not final and end + 2 > len(text):
            return WAIT
        if _QUOTE_GOES_ON.match(text, end):
            return NO
    return _behind_blanks(text, end, final=final)


def _behind_blanks(text: str, end: int, *, final: bool) -> int:
    """``end``, but not before all the white space behind it has been seen: it leaves with the segment."""
    return WAIT if text[end:] == " " and not final else end


def _end_without_blank(text: str, at: int, run: str, closers: str, end: int, *, final: bool) -> int:
    """The text goes on right behind the mark: mostly a number, a name or an address, sometimes a lost blank."""
    following = text[end]
    if _HAN_KANA.match(following):
        before = text[at - 1] if at else ""
        return end if "…" not in run and not closers and not before.isdigit() else NO
    if closers or not following.isupper() or at < 2 or not text[at - 1].islower() or not text[at - 2].isalpha():
        return NO
    word = _NEXT_WORD.match(text, end)
    if word is None or (word.end() == len(text) and not final and len(word[1]) < _WORD_LIMIT_CHARS):
        return WAIT
    token = _LAST_TOKENS.search(text[max(0, at - _LOOK_BACK_CHARS) : at])
    if token is None or not token[2].isalpha() or not token[2].islower():
        return NO
    return end if word[1].strip(".'’") in words.STARTERS else NO


def _end_before(text: str, at: int, run: str, closers: str, end: int, *, final: bool, chatty: bool) -> int:
    """The mark is followed by a blank and at least one more character."""
    follower = text[end + 1]
    if follower in END_MARKS or follower in ",;:" or follower in SCRIPT_CLAUSE_MARKS:
        return NO
    if follower in _DASHES:
        return _end_before_dash(text, end, final=final)
    quoted = any(c in _QUOTES for c in closers)
    asks = "!" in run or "?" in run
    if follower.islower():
        return _end_before_lower(text, at, run, end, quoted=quoted, chatty=chatty, final=final)
    if asks or quoted:
        return end
    if len(run) > 1 or "…" in run or text[:at].endswith(" "):
        return _end_of_ellipsis(text, end, final=final)
    if follower.isdigit():
        return NO if _is_before_number(text, at) else end
    if follower in "([" and _takes_note(text, at):
        return NO
    verdict = _full_stop(text, at, end, final=final)
    return NO if verdict > 0 and closers and _is_known_abbreviation(text, at) else verdict


def _end_before_dash(text: str, end: int, *, final: bool) -> int:
    """ "— said he" goes on, "- Next" (a dash that opens a line of speech) does not."""
    if end + 3 >= len(text) and not final:
        return WAIT
    rest = text[end + 2 : end + 4].lstrip()
    return end if rest[:1].isupper() or rest[:1].isdigit() else NO


def _end_before_lower(text: str, at: int, run: str, end: int, *, quoted: bool, chatty: bool, final: bool) -> int:
    word = _NEXT_WORD.match(text, end + 1)
    if word is None:
        return NO
    if chatty and not quoted and "…" not in run and len(run) == 1:
        before = _LAST_TOKENS.search(text[max(0, at - _LOOK_BACK_CHARS) : at])
        plain = before is not None and before[2].isalpha() and len(before[2]) > 1
        return end if plain and not _is_known_abbreviation(text, at) else NO
    if not word[1][1:2]:
        return WAIT if word.end() == len(text) and not final else NO
    return end if word[1][1].isupper() and not quoted and not _is_known_abbreviation(text, at) else NO


def _end_of_ellipsis(text: str, end: int, *, final: bool) -> int:
    word = _NEXT_WORD.match(text, end + 1)
    if word is None:
        return NO
    if word.end() == len(text) and not final and len(word[1]) < 3:
        return WAIT
    return NO if word[1] == "I" or word[1].startswith(("I'", "I’")) else end


def _tokens_before(text: str, at: int) -> tuple[str, str]:
    """The token before the mark and the one before that, without opening marks."""
    found = _LAST_TOKENS.search(text[max(0, at - _LOOK_BACK_CHARS) : at])
    if found is None:
        return "", ""
    return found[2].lstrip(_OPENERS), (found[1] or "").lstrip(_OPENERS)


def _is_known_abbreviation(text: str, at: int) -> bool:
    token = _LAST_PART.sub("", _tokens_before(text, at)[0])
    return _is_listed(token) or bool(_LETTERS_DOTTED.fullmatch(token))


def _is_listed(token: str) -> bool:
    lower = token.lower()
    return lower in words.TITLES or lower in words.BEFORE_NAME or token in words.CAPITAL_TITLES


def _is_before_number(text: str, at: int) -> bool:
    token, before = _tokens_before(text, at)
    part = _LAST_PART.sub("", token.rpartition("(")[2])
    lower = part.lower()
    if token.isdigit():
        dated = before.lower() in words.ORDINAL_LEADS or (before[:-1].isdigit() and before[-1] == ".")
        return len(token) <= 2 and (at == len(token) or dated)
    if len(token) == 1:
        return token.isalpha() and part != "I"
    listed = lower in words.BEFORE_NUMBER or part in words.CAPITAL_BEFORE_NUMBER
    return listed or lower in words.TITLES or lower.endswith("str")


def _is_initial(token: str) -> bool:
    return len(token) == 2 and token[0].isalpha() and token[1] == "."


def _takes_note(text: str, at: int) -> bool:
    """Whether brackets behind the abbreviation belong to it, as in "et al. (2021)"."""
    token = _tokens_before(text, at)[0].lower()
    return token in words.BEFORE_NUMBER or _is_known_abbreviation(text, at)


def _full_stop(text: str, at: int, end: int, *, final: bool) -> int:
    """One full stop, then a blank, then a capital, an opening quote or a letter of a script without case."""
    token, before = _tokens_before(text, at)
    token = _LAST_PART.sub("", token)
    lower = token.lower()
    if token.isdigit():
        if at == len(token) and len(token) <= 3:
            return NO
        if len(token) > 3 or not (before.lower() in words.ORDINAL_LEADS or _may_be_ordinal(text, end)):
            return end
    elif not lower.endswith("str") and not (
        len(token) == 1
        or _is_listed(token)
        or lower in words.DAY_TIMES
        or _ROMAN.fullmatch(token)
        or _LETTERS_DOTTED.fullmatch(token)
        or (len(token) < 4 and _is_initial(before))
    ):
        return end
    if len(token) == 1 and before.lower() in words.LABELS:
        return end
    word = _NEXT_WORD.match(text, end + 1)
    if word is None:
        return NO
    if lower in words.DAY_TIMES and _begins_plainly(word[1]):
        return end
    if word.end() == len(text) and not final and len(word[1]) < _WORD_LIMIT_CHARS:
        return WAIT
    return _before_word(token, lower, before, word[1].rstrip("."), end, dotted=word[1].endswith("."))


def _may_be_ordinal(text: str, end: int) -> bool:
    """Whether the word behind begins like one that goes with an ordinal; it need not be complete."""
    word = _NEXT_WORD.match(text, end + 1)
    begun = word[1].lower() if word else ""
    return any(noun.startswith(begun) or begun.startswith(noun) for noun in words.ORDINAL_NOUNS)


def _begins_plainly(begun: str) -> bool:
    """Whether a word beginning so is none that goes with a time of the day, nor a title or initial."""
    begun = begun.partition(".")[0]
    lower = begun.lower()
    if len(begun) < 2 or begun.isupper():
        return False
    return not any(name.startswith(lower) or lower.startswith(name) for name in words.AFTER_TIME)


def _before_word(token: str, lower: str, before: str, word: str, end: int, *, dotted: bool) -> int:
    """The token needs the whole next ``word`` for a decision."""
    plain = word.replace("’", "'")
    starts = plain in words.STARTERS or plain.partition("'")[0] in words.STARTERS
    if token.isdigit():
        if word.lower() in words.ORDINAL_NOUNS:
            return NO
        return end if starts or before.lower() not in words.ORDINAL_LEADS else NO
    if lower in words.DAY_TIMES or (lower == "m" and before.lower() in ("a.", "p.")):
        named = word.lower() in words.AFTER_TIME or (word.isupper() and (dotted or len(word) > 1))
        return NO if named else end
    if len(token) == 1 and _is_initial(before) and before[0].islower():
        return NO
    if len(token) == 1 and token.islower() and not starts:
        return end if before[:1].isdigit() and not dotted else NO
    if lower in words.TITLES:
        return NO
    if lower == "ph.d" or lower.endswith("str"):
        return end
    return end if starts and not (len(word) == 1 and dotted) else NO


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
    token, _ = _tokens_before(text, at)
    follower = text[end + 1]
    if mark == "," and ((token.endswith(".") and token.lower() not in ("etc.", "usw.", "ecc.")) or follower.isdigit()):
        return NO
    if mark == "," and token[:1].isupper() and follower.isupper():
        return NO
    return end


def is_safe_end(text: str, at: int, marks: str) -> bool:
    """Whether the end mark at ``text[at]``, last so far, surely ends a sentence although nothing follows yet."""
    if marks[:1] != "." or len(marks.rstrip("\"'”’»)]")) > 1:
        return marks[:1] not in ".…" and bool(marks)
    token = _tokens_before(text, at)[0]
    return len(token) > 1 and token.isalpha() and not _is_known_abbreviation(text, at)


def is_safe_word_end(text: str, cut: int) -> bool:
    """Whether a pause between ``text[:cut]`` and the next word cannot tear a number, name or abbreviation apart."""
    last = text[:cut].rstrip()[-1:]
    return last.isalpha() or last in END_MARKS + '"”’»)' if last != "." else False
