"""Prompt layouts: what stage 0 reads before the first code, as vectors, and which text ids follow one per frame.

A layout has a constant head (instruction, role, codec prefix with the speaker), equal for all texts spoken in the same
way, and a rest that depends on the text. ``Layout.key`` names the head, so that its keys and values can be kept.

What was said before (a carry) stands where the codes of an in-context reference do, after them: its text before the
text to speak, its frames after the codec's bos. That is the very prefill of a model that has spoken these frames itself
and goes on, so it serves every kind of checkpoint, those without references too. No space is put between the texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from adapters.engines.qwen3_tts.config import TalkerConfig
from adapters.engines.qwen3_tts.predictor import Predictor
from adapters.engines.qwen3_tts.stages import CODEBOOKS, Prompt, Said
from adapters.engines.qwen3_tts.talker import Talker
from sidecar.faults import BadRequest


@dataclass(frozen=True, slots=True)
class Layout:
    """One prompt, laid out.

    ``head (h, hidden)`` and ``rest (r, hidden)`` are the prefill, ``trailing`` the ids fed with the frames, tts_eos
    included once the text is complete; tts_pad follows them. ``key`` identifies ``head`` within one checkpoint.
    """

    key: str
    head: torch.Tensor
    rest: torch.Tensor
    trailing: tuple[int, ...]

    @property
    def prefill(self) -> torch.Tensor:
        """The whole prefill, ``(positions, hidden)``."""
        return torch.cat((self.head, self.rest))


class PromptBuilder:
    """Lays out prompts with the talker's and predictor's embeddings; ``role_ids`` are ``<|im_start|>assistant\\n``."""

    def __init__(self, talker: Talker, predictor: Predictor, role_ids: Sequence[int]) -> None:
        self.config: TalkerConfig = talker.config
        self._talker = talker
        self._predictor = predictor
        self._role = tuple(role_ids)
        self._device = talker.place.device
        text = self.config.text
        special = talker.text(self._tensor((text.tts_bos, text.tts_eos, text.tts_pad)))
        self.tts_bos, self.tts_eos, self.tts_pad = (special[at : at + 1] for at in range(3))  # (1, hidden) each

    def _tensor(self, ids: Sequence[int]) -> torch.Tensor:
        return torch.tensor(ids, dtype=torch.int64, device=self._device)

    def check(self, prompt: Prompt) -> None:
        """Raise ``BadRequest`` for what this checkpoint cannot say, or what cannot be laid out."""
        config, reference = self.config, prompt.reference
        if not prompt.text_ids:
            raise BadRequest("there is no text to speak", param="text_ids")
        for ids in (prompt.text_ids, prompt.instruct_ids, reference.text_ids if reference else ()):
            if any(not 0 <= one < config.text_vocab for one in ids):
                raise BadRequest("a text id is outside the vocabulary", param="text_ids")
        if prompt.language is not None and prompt.language.lower() not in ("auto", *config.languages):
            raise BadRequest(
                f"language {prompt.language} is not spoken; languages: auto, {', '.join(config.offered_languages)}",
                param="language",
            )
        if prompt.instruct_ids and not config.takes_instructions:
            raise BadRequest("this checkpoint takes no instructions", param="instruct_ids")
        if prompt.layout == "whole" and not prompt.closed:
            raise BadRequest("text that is still coming needs the streaming layout", param="layout")
        self._check_voice(prompt)
        self._check_spoken(prompt)

    def _check_voice(self, prompt: Prompt) -> None:
        config, reference = self.config, prompt.reference
        if (prompt.speaker is not None) != (config.kind == "custom_voice"):
            names = ", ".join(config.speakers) or "none"
            raise BadRequest(f"this checkpoint ({config.kind}) has the speakers: {names}", param="speaker")
        if prompt.speaker is not None and prompt.speaker.lower() not in config.speakers:
            raise BadRequest(
                f"unknown speaker {prompt.speaker}; speakers: {', '.join(config.speakers)}", param="speaker"
            )
        if (reference is not None) != (config.kind == "base"):
            need = "needs" if config.kind == "base" else "takes no"
            raise BadRequest(f"this checkpoint ({config.kind}) {need} reference voice", param="reference")
        if reference is None:
            return
        width = config.talker.hidden
        if reference.embedding.shape != (width,):
            raise BadRequest(
                f"the speaker embedding has shape {reference.embedding.shape}, expected ({width},)", param="reference"
            )

    def _check_spoken(self, prompt: Prompt) -> None:
        reference = prompt.reference
        if reference is not None and reference.codes is not None:
            self._check_codes(Said(reference.codes, reference.text_ids), "reference")
        if prompt.carry is not None:
            self._check_codes(prompt.carry, "carry")
        if not prompt.closed and len(prompt.text_ids) < prompt.ids_to_begin:
            raise BadRequest(
                f"live text after what was said before needs at least {prompt.ids_to_begin} text ids to begin with, "
                f"not {len(prompt.text_ids)}",
                param="text_ids",
            )

    def _check_codes(self, said: Said, name: str) -> None:
        codes, most = said.codes, self.config.codes
        if codes.ndim != 2 or codes.shape[1] != CODEBOOKS or not len(codes):
            raise BadRequest(f"{name} codes have shape {codes.shape}, expected (frames, 16)", param=name)
        if codes.min() < 0 or codes.max() >= most:
            raise BadRequest(f"{name} codes must be from 0 to {most - 1}", param=name)
        if not said.text_ids:
            raise BadRequest(f"{name} codes need the transcript of the {name}", param=name)

    def positions(self, prompt: Prompt) -> int:
        """Length of the prefill. The prompt must have passed ``check``."""
        head = len(prompt.instruct_ids) + len(self._role) + len(self._codec_head(prompt))
        if prompt.speaker is not None or prompt.reference is not None:
            head += 1
        spoken = prompt.spoken
        if spoken is not None:
            text = len(spoken.text_ids) + len(prompt.text_ids) + 1
            codes = len(spoken.codes) + 1
            return head + 1 + (codes + text if prompt.layout == "whole" else codes)
        return head + 1 + (len(prompt.text_ids) + 2 if prompt.layout == "whole" else 1)

    def _codec_head(self, prompt: Prompt) -> list[int]:
        """Codec ids of the think block."""
        codec = self.config.codec
        language = self.config.language_id(prompt.language, prompt.speaker)
        if language is None:
            return [codec.nothink, codec.think_bos, codec.think_eos]
        return [codec.think, codec.think_bos, language, codec.think_eos]

    def build(self, prompt: Prompt) -> Layout:
        """Lay out a prompt. Raises ``BadRequest``."""
        self.check(prompt)
        rest, trailing = self.rest(prompt)
        return Layout(self.key(prompt), self.head(prompt), rest, trailing)

    def key(self, prompt: Prompt) -> str:
        """Names the head: equal keys, equal heads (within one checkpoint)."""
        speaker = prompt.speaker.lower() if prompt.speaker else ""
        voice = prompt.reference.embedding.tobytes() if prompt.reference is not None else b""
        named = (prompt.instruct_ids, self._codec_head(prompt), speaker)
        return hashlib.sha256(repr(named).encode() + voice).hexdigest()

    def head(self, prompt: Prompt) -> torch.Tensor:
        """Instruction, role, codec prefix up to and with the codec pad: ``(h, hidden)``."""
        talker, codec = self._talker, self.config.codec
        ids = [*prompt.instruct_ids, *self._role]
        side = [talker.codes(self._tensor(self._codec_head(prompt)))]
        if prompt.speaker is not None:
            side.append(talker.codes(self._tensor((self.config.speakers[prompt.speaker.lower()],))))
        if prompt.reference is not None:
            side.append(talker.place.put(torch.from_numpy(prompt.reference.embedding.copy()))[None])
        padded = torch.cat(side) + self.tts_pad
        last = talker.codes(self._tensor((codec.pad,))) + self.tts_bos
        return torch.cat((talker.text(self._tensor(ids)), padded, last))

    def rest(self, prompt: Prompt) -> tuple[torch.Tensor, tuple[int, ...]]:
        """From the first text on: ``(r, hidden)`` and the ids that are left for the frames."""
        talker, codec, eos = self._talker, self.config.codec, self.config.text.tts_eos
        begin, pad = (talker.codes(self._tensor((one,))) for one in (codec.bos, codec.pad))
        end = (eos,) if prompt.closed else ()
        spoken = prompt.spoken
        if spoken is not None:
            ids = (*spoken.text_ids, *prompt.text_ids, *end)
            said = torch.cat((begin, self._frames(torch.from_numpy(spoken.codes.copy()))))  # (R + 1, hidden)
            if prompt.layout == "whole":
                return torch.cat((talker.text(self._tensor(ids)) + pad, said + self.tts_pad)), ()
            read = talker.text(self._tensor(ids[: len(said)]))
            fill = self.tts_pad.expand(len(said) - len(read), -1)
            return torch.cat((read, fill)) + said, ids[len(said) :]
        if prompt.layout == "whole":
            text = talker.text(self._tensor(prompt.text_ids))
            return torch.cat((torch.cat((text, self.tts_eos)) + pad, self.tts_pad + begin)), ()
        first = talker.text(self._tensor(prompt.text_ids[:1]))
        return first + begin, (*prompt.text_ids[1:], *end)

    def _frames(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes ``(frames, 16)`` to the sums of their vectors, ``(frames, hidden)``."""
        by_group = codes.to(self._device, torch.int64).unbind(1)
        vectors = [self._talker.codes(by_group[0])]
        vectors += [self._predictor.embed(group, by_group[group]) for group in range(1, CODEBOOKS)]
        return torch.stack(vectors, 1).sum(1)
