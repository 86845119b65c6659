"""Text to ids, as the released models were trained: NFC, Qwen2's splitting rule, byte-level BPE.

Built from ``vocab.json``, ``merges.txt`` and the added tokens of ``tokenizer_config.json`` with the ``tokenizers``
library, so that neither a network nor a model class is needed. Strings such as ``<|im_end|>`` inside a text to be
spoken are read out like any other characters; the reference takes them for control tokens.
"""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from sidecar.faults import ConfigError

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where BPE may not merge across. The reference swaps this rule for another one when it loads a local folder."""


def readable(text: str) -> str:
    """The text with halves of surrogate pairs joined, or replaced where the other half is missing."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class TextTokens:
    """The tokenizer of one checkpoint folder. Thread-safe. Raises ``ConfigError`` naming the file that is unusable."""

    def __init__(self, folder: Path) -> None:
        special = _added_tokens(folder / "tokenizer_config.json")
        try:
            bpe = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        except Exception as error:  # the library raises bare Exceptions
            raise ConfigError([f"vocab.json, merges.txt: unreadable vocabulary ({error})"]) from error
        self._split = pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated")
        self._bpe = tokenizers.Tokenizer(bpe)
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [self._split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        try:
            self._im_start, self._im_end = special["<|im_start|>"], special["<|im_end|>"]
        except KeyError as error:
            raise ConfigError([f"tokenizer_config.json: added token {error} is missing"]) from error
        self._newline = self._plain("\n")
        self.role_ids = (self._im_start, *self._plain("assistant"), *self._newline)

    def _plain(self, text: str) -> tuple[int, ...]:
        return tuple(self._bpe.encode(text, add_special_tokens=False).ids)

    def text(self, text: str) -> tuple[int, ...]:
        """The ids of a text to be spoken (or of a reference's transcript): the body of a prompt."""
        return self._plain(unicodedata.normalize("NFC", readable(text)))

    def normalised(self, text: str) -> tuple[int, ...]:
        """The ids of a text that is in NFC already; see ``live_text``."""
        return self._plain(text)

    def instruction(self, text: str) -> tuple[int, ...]:
        """The ids of an instruction with its frame; none for an empty one."""
        if not text:
            return ()
        user, body = self._plain("user"), self.text(text)
        return (self._im_start, *user, *self._newline, *body, self._im_end, *self._newline)

    def words(self, text: str) -> list[str]:
        """The pieces BPE works on, one by one; together they are the text."""
        return [text[start:end] for _, (start, end) in self._split.pre_tokenize_str(text)]


def _added_tokens(path: Path) -> dict[str, int]:
    try:
        body: Any = json.loads(path.read_text(encoding="utf-8"))
        return {str(token["content"]): int(id) for id, token in body["added_tokens_decoder"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError([f"{path.name}: unreadable ({type(error).__name__})"]) from error
