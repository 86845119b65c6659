"""Text to ids: Qwen2's byte-level BPE, the frames a prompt puts around a text, and ids of text that is still arriving.

The split pattern is the one the models were trained with; what a local folder makes transformers load instead breaks
words at inner capitals. Different from the reference on purpose: strings such as ``<|im_end|>`` in a user's text are
ordinary characters here, so no request can reach a reserved id.
"""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers  # type: ignore[import-untyped]

from adapters.engines.qwen3_tts.config import TalkerConfig, TextIds
from sidecar.faults import ConfigError

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Letters that can join the character before them under NFC: conjoining jamo, and Kirat Rai vowel signs. All others
# that can are marks.
_JOINING = ((0x1100, 0x11FF), (0xA960, 0xA97F), (0xD7B0, 0xD7FF), (0x16D63, 0x16D6A))


class TextTokenizer:
    """Encodes the texts of one checkpoint."""

    def __init__(self, vocabulary: Mapping[str, int], merges: list[tuple[str, str]], ids: TextIds) -> None:
        self._bpe: Any = Tokenizer(models.BPE(vocab=dict(vocabulary), merges=merges))
        self._bpe.normalizer = normalizers.NFC()
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        self._ids = ids
        self._line = self.plain_ids("\n")
        self.role_ids: tuple[int, ...] = (ids.im_start, *self.plain_ids("assistant"), *self._line)
        if self.role_ids[1:-1] != (ids.assistant,) or len(self._line) != 1:
            raise ConfigError(["vocab.json and merges.txt do not give the id that config.json has for 'assistant'"])

    @staticmethod
    def load(folder: Path, config: TalkerConfig) -> TextTokenizer:
        """From ``vocab.json`` and ``merges.txt``. Raises ``ConfigError`` naming the file."""
        try:
            vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(["vocab.json cannot be read: missing or not JSON"]) from error
        if not isinstance(vocabulary, dict) or not all(
            isinstance(one, int) and 0 <= one < config.text_vocab for one in vocabulary.values()
        ):
            raise ConfigError([f"vocab.json must map strings to ids below {config.text_vocab}"])
        try:
            lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise ConfigError(["merges.txt cannot be read: missing or not UTF-8"]) from error
        # Only a version line is a comment: merges of '#' begin with one too.
        pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        if any(len(pair) != 2 for pair in pairs):
            raise ConfigError(["merges.txt must hold two parts on each line"])
        try:
            return TextTokenizer(vocabulary, [(pair[0], pair[1]) for pair in pairs], config.text)
        except ConfigError:
            raise
        except Exception as error:  # the library's own class: a merge of parts that vocab.json lacks
            raise ConfigError(["merges.txt and vocab.json do not belong together"]) from error

    def plain_ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text as plain characters."""
        return tuple(self._bpe.encode(_well_formed(text)).ids)

    def body_ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text to speak. Line breaks before it count as the prompt's own, as in the reference."""
        return self.plain_ids(_without_leading_breaks(text))

    def reference_ids(self, text: str) -> tuple[int, ...]:
        """Ids of a reference's transcript, without the frame around it."""
        return self.body_ids(text)

    def instruct_ids(self, text: str) -> tuple[int, ...]:
        """Ids of an instruction with its frame; none for an empty one."""
        if not text:
            return ()
        return (self._ids.im_start, *self.plain_ids(f"user\n{text}"), self._ids.im_end, *self._line)

    def live(self) -> LiveTokenizer:
        """For one text that arrives in pieces."""
        return LiveTokenizer(self)

    def normalise(self, text: str) -> str:
        """NFC, by the library that encodes."""
        return str(self._bpe.normalizer.normalize_str(_well_formed(text)))

    def pretokens(self, normalised: str) -> list[tuple[str, int]]:
        """The pieces BPE works on, in its byte alphabet, each with the offset of its end in the text."""
        return [(piece, span[1]) for piece, span in self._bpe.pre_tokenizer.pre_tokenize_str(normalised)]

    def pretoken_ids(self, piece: str) -> list[tuple[int, int]]:
        """Ids of one of ``pretokens``, each with the bytes of the text that it stands for."""
        return [(token.id, len(token.value)) for token in self._bpe.model.tokenize(piece)]


class LiveTokenizer:
    """Gives ids as soon as no later text can change them; together they are the ids of the whole text.

    A pre-token is final once the next one has begun: nothing that follows can lengthen it any more. White space is an
    exception, since a line break later in the same run can swallow all of it; it waits for the run's end. Characters
    that normalisation may still combine with what follows are not looked at.

    ``ends`` has, for each id given so far, the characters of the text up to its end: where normalisation joins
    characters, the end of what it joined.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.ends: list[int] = []
        self._tokenizer = tokenizer
        self._raw = ""  # may still combine with what follows
        self._raw_at = 0
        self._normalised = ""  # will not, but its pre-tokens are open
        self._origins: list[int] = []  # of each of its characters, the end in the text
        self._begun = False

    def feed(self, text: str) -> list[int]:
        """More text; returns the ids that have become final."""
        self._raw += text
        self._normalise(_last_seam(self._raw))
        return self._commit(final=False)

    def finish(self) -> list[int]:
        """The text is complete; returns the ids that are left. Nothing may be fed afterwards."""
        self._normalise(len(self._raw))
        return self._commit(final=True)

    def _normalise(self, length: int) -> None:
        text, self._raw = self._raw[:length], self._raw[length:]
        normalised = self._tokenizer.normalise(text)
        origins = _origins(text, normalised, self._tokenizer.normalise)
        self._normalised += normalised
        self._origins += [self._raw_at + end for end in origins]
        self._raw_at += length

    def _commit(self, *, final: bool) -> list[int]:
        if not self._begun:
            self._drop(len(self._normalised) - len(_without_leading_breaks(self._normalised)))
            if self._normalised.isspace() and not final:
                return []  # a line break may follow
            self._begun = bool(self._normalised)
        pieces = self._tokenizer.pretokens(self._normalised)
        if not final:
            begins = len(self._normalised.rstrip())
            pieces = pieces[:-1]
            while pieces and (pieces[-2][1] if len(pieces) > 1 else 0) >= begins:
                pieces.pop()
        ids, start = [], 0
        for piece, end in pieces:
            ids += self._ids_of(piece, start, end)
            start = end
        self._drop(start)
        return ids

    def _drop(self, characters: int) -> None:
        self._normalised = self._normalised[characters:]
        del self._origins[:characters]

    def _ids_of(self, piece: str, start: int, end: int) -> list[int]:
        """Ids of a pre-token that has this place in the normalised text; notes their ends."""
        found = self._tokenizer.pretoken_ids(piece)
        if len(found) > 1:
            encoded, bytes_ = self._normalised[start:end].encode("utf-8"), 0
            for _, length in found[:-1]:
                bytes_ += length
                characters = len(encoded[:bytes_].decode("utf-8", "ignore"))
                before = self.ends[-1] if self.ends else 0
                self.ends.append(self._origins[start + characters - 1] if characters else before)
        if found:
            self.ends.append(self._origins[end - 1])
        return [one for one, _ in found]


def _without_leading_breaks(text: str) -> str:
    """White space before the text up to its last line break belongs to the frame's own line break."""
    run = text[: len(text) - len(text.lstrip())]
    return text[max(run.rfind("\n"), run.rfind("\r")) + 1 :]


def _origins(text: str, normalised: str, normalise: Callable[[str], str]) -> list[int]:
    """For each character of a normalised text, where what it comes from ends in the text."""
    if text == normalised:
        return list(range(1, len(text) + 1))
    starts = [at for at in range(len(text)) if not _joins(text[at])]
    groups = list(itertools.pairwise([0, *(at for at in starts if at), len(text)]))
    made = [normalise(text[start:end]) for start, end in groups]
    if "".join(made) == normalised:
        origins: list[int] = []
        for (start, end), group in zip(groups, made, strict=True):
            same = group == text[start:end]
            origins += range(start + 1, end + 1) if same else [end] * len(group)
        return origins
    share = len(text) / len(normalised)  # halves of a surrogate pair, joined: not worth more
    return [round((at + 1) * share) for at in range(len(normalised))]


def _joins(character: str) -> bool:
    """True for what normalisation may combine with the character before it."""
    code = ord(character)
    return unicodedata.category(character).startswith("M") or any(low <= code <= high for low, high in _JOINING)


def _last_seam(text: str) -> int:
    """The last place where a character begins that combines with nothing before it: what is before stays as it is."""
    for at in range(len(text) - 1, -1, -1):
        if not _joins(text[at]):
            return at
    return 0


def _well_formed(text: str) -> str:
    """Surrogates joined or replaced: they have no UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
