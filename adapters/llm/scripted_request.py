"""What a scripted language model is asked for: chat requests, checked, and the pieces of their replies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ECHO = "scripted-echo"
"""The model that says the last user message."""

DEFAULT_REPLIES: Mapping[str, str] = {
    "scripted": (
        "Hello, and **welcome**! I know only this one answer, and I know it by heart. "
        "Three things in it are worth listening to:\n\n"
        "1. Numbers, such as 12.5 percent or 3,400 kilometers.\n"
        "2. *Emphasis* and `code`, which are spoken as plain words.\n"
        "3. Sentences, some of which are rather short.\n\n"
        "Did you notice that you heard the first words before the last ones were written? "
        "That is the whole idea."
    ),
    "scripted-de": (
        "Hallo und **willkommen**! Ich kenne nur diese eine Antwort, und die kann ich auswendig. "
        "Auf drei Dinge lohnt es sich zu achten:\n\n"
        "1. Zahlen, zum Beispiel 12,5 Prozent oder 3.400 Kilometer.\n"
        "2. *Betonung* und `Code`, die wie einfache Wörter gesprochen werden.\n"
        "3. Sätze, von denen manche recht kurz sind.\n\n"
        "Haben Sie gemerkt, dass die ersten Wörter schon zu hören waren, bevor die letzten geschrieben wurden? "
        "Genau darum geht es."
    ),
}
"""Model name to reply."""

_MAX_CHOICES = 128
_MAX_STOPS = 4
_PIECE = re.compile(r" ?[^\W\d_]{1,8}|\d{1,3}| ?[^\w\s]{1,3}|_|\s")


class Refused(Exception):
    """The request is answered with ``status`` and an OpenAI ``error`` object."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """One checked request: the ``pieces`` to write for each of ``choices``, why they end, what to count."""

    model: str
    pieces: Sequence[str]
    finish_reason: str
    choices: int
    prompt_tokens: int
    stream: bool
    include_usage: bool

    def usage(self) -> dict[str, int]:
        """The usage object of the whole answer."""
        written = len(self.pieces) * self.choices
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": self.prompt_tokens + written,
        }


def pieces_of(text: str) -> list[str]:
    """Cut ``text`` as tokenizers do: a space belongs to the word after it, long words come in parts.

    Joined, the pieces are the text again.
    """
    return _PIECE.findall(text)


def read_request(body: object, replies: Mapping[str, str]) -> ScriptedRequest:
    """Check a chat completion request; raises ``Refused``."""
    if not isinstance(body, Mapping):
        raise Refused(400, "The body must be a JSON object.")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refused(400, "A model must be given.", param="model")
    if model != ECHO and model not in replies:
        raise unknown_model(model)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(item, Mapping) for item in messages):
        raise Refused(400, "'messages' must be a list of at least one message.", param="messages")
    texts = [_text_of(message) for message in messages]
    reply = _last_user(messages, texts) if model == ECHO else replies[model]
    for stop in _stops(body):
        reply = reply.split(stop, 1)[0]
    pieces, finish = pieces_of(reply), "stop"
    limit = _whole_number(body, "max_completion_tokens", "max_tokens")
    if limit is not None and limit < len(pieces):
        pieces, finish = pieces[:limit], "length"
    choices = _whole_number(body, "n") or 1
    if choices > _MAX_CHOICES:
        raise Refused(400, f"'n' must be at most {_MAX_CHOICES}.", param="n")
    options = body.get("stream_options")
    return ScriptedRequest(
        model=model,
        pieces=pieces,
        finish_reason=finish,
        choices=choices,
        prompt_tokens=sum(3 + len(pieces_of(text)) for text in texts),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
    )


def unknown_model(model: str) -> Refused:
    """The answer to a request for a model that is not there."""
    return Refused(404, f"The model `{model[:100]}` does not exist.", param="model", code="model_not_found")


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
        return " ".join(part["text"] for part in content if isinstance(part.get("text"), str))
    raise Refused(400, "A message's 'content' must be text or a list of parts.", param="messages")


def _last_user(messages: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> str:
    said = [text for message, text in zip(messages, texts, strict=True) if message.get("role") == "user"]
    return said[-1] if said else ""


def _stops(body: Mapping[str, Any]) -> list[str]:
    stops = body.get("stop")
    if stops is None:
        return []
    if isinstance(stops, str):
        stops = [stops]
    if not isinstance(stops, list) or len(stops) > _MAX_STOPS or not all(isinstance(stop, str) for stop in stops):
        raise Refused(400, f"'stop' must be a text or a list of at most {_MAX_STOPS} texts.", param="stop")
    return [stop for stop in stops if stop]


def _whole_number(body: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Refused(400, f"'{name}' must be a whole number of at least 1.", param=name)
        return value
    return None
