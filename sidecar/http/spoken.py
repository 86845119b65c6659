"""One spoken chat answer, streamed or whole, and what is remembered of it."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import numpy as np
from litestar.types import ASGIApp

from sidecar.chat_turn import ChatTurn, ChoiceOver, Heard, Passed, SpokenReply, TurnEvent, Words, WordsTimed
from sidecar.core.chat import ChatChunks, MessageBuilder, audio_tokens, spoken_usage
from sidecar.core.dialog import SpokenTurn
from sidecar.core.events import SegmentEnded, SegmentStarted
from sidecar.core.playhead import Heard as HeardSoFar
from sidecar.core.word_times import WordTime, words_of
from sidecar.faults import Fault
from sidecar.gate import Caller
from sidecar.http.chat_fields import AudioWish
from sidecar.http.passing import SSE_HEADERS
from sidecar.http.reply_rules import feed_limits, segment_options, sound_rules
from sidecar.http.service import Service
from sidecar.http.wire import BodyStream, in_pieces, openai_error, to_json
from sidecar.live_reply import LiveReply
from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, ChatOpened, ChatStream, Pcm
from sidecar.reply import Reply, Voicing
from sidecar.reply_ears import ReplyEars
from voices.carry import KeptCarry

log = logging.getLogger(__name__)

DIALOG_HEADER = "x-sidecar-dialog"
"""Names the dialog in answers, for its drift report."""

MODE_HEADER = "x-sidecar-mode"
"""How the answer is spoken: ``live``, or ``segment``, also where live was asked of an engine that cannot."""

CARRY_TTL_S = 600.0
"""A carry is of no use after a much shorter silence already."""

_SILENCE: Pcm = np.zeros(FRAME_SAMPLES, np.float32)


class SpokenAnswer:
    """One spoken answer, streamed or whole."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        wish: AudioWish,
        voicing: Voicing,
        stream: ChatStream,
        prompt_chars: int,
        *,
        audio_ids: list[str],
        dialog: str,
        kept: KeptCarry | None = None,
    ) -> None:
        self._dialog = dialog
        self._kept = kept
        self._ears: ReplyEars | None = None
        self._service = service
        self._caller = caller
        self._wish = wish
        self._voicing = voicing
        self._prompt_chars = prompt_chars
        self._upstream_headers = dict(stream.headers)
        self.mode = service.mode_of(wish.mode, voicing.stored or voicing.voice)
        self._timer = service.metrics.reply_started(
            "chat", service.clock.now_ms(), streamed=wish.stream, mode=self.mode
        )
        self._audio_ids = audio_ids
        self._transcripts = [""] * wish.n
        self._cut: dict[int, HeardSoFar] = {}
        self._remembering = asyncio.Lock()
        self._expires_at = service.memory.expiry()
        thinking = service.config.llm.starts_in_think
        self._turn = ChatTurn(stream, wish.n, self._reply, thinking, word_times=wish.word_times)

    def _reply(self, choice: int) -> SpokenReply:
        service = self._service
        # Several choices are no dialog: the first one goes on, the others are spoken without a past.
        ears = service.ears(self._caller, self._voicing, self._dialog, self._kept) if choice == 0 else None
        self._ears = self._ears or ears
        if self.mode == "live":
            return LiveReply(
                service.engine,
                service.clock,
                self._voicing,
                service.reply_limits(),
                feed_limits(service.config),
                service.metrics,
                ears=ears,
                sound=sound_rules(service.config),
            )
        return Reply(
            service.engine,
            service.clock,
            self._voicing,
            segment_options(service.config),
            service.reply_limits(),
            service.metrics,
            ears=ears,
            sound=sound_rules(service.config),
        )

    async def _events(self) -> AsyncGenerator[TurnEvent, None]:
        """The turn's events, timed; whatever was heard is remembered, also when the listener hangs up."""
        outcome = "failed"
        over: set[int] = set()
        names = [(self._caller.tenant, audio_id) for audio_id in self._audio_ids]
        self._service.replies.update(dict.fromkeys(names, self))
        try:
            async with aclosing(self._turn.events()) as events:
                async for event in events:
                    if isinstance(event, Words):
                        self._timer.token(self._service.clock.now_ms())
                        self._transcripts[event.choice] += event.text
                    elif isinstance(event, Heard) and event.audio is not None:
                        self._timer.audio(self._service.clock.now_ms(), len(event.audio.pcm))
                    elif isinstance(event, ChoiceOver):
                        over.add(event.choice)
                        await self._remember(event.choice, self._transcripts[event.choice])
                        if event.choice == 0 and not self._cut:
                            await self._keep_carry()
                    yield event
            outcome = "cancelled" if self._cut else "completed"
        except (GeneratorExit, asyncio.CancelledError):
            outcome = "cancelled"
            raise
        finally:
            self._timer.ended(self._service.clock.now_ms(), outcome)
            try:
                for choice in set(range(self._wish.n)) - over if self._wish.stream else ():
                    await self._remember(choice, self._heard_text(choice))
            finally:
                for name in names:
                    self._service.replies.pop(name, None)

    def _heard_text(self, choice: int) -> str:
        """What of a reply that broke off was heard: up to its last whole word, or all that was written."""
        heard = self._turn.playhead(choice).heard()
        rest = self._transcripts[choice][heard.chars :]
        return self._transcripts[choice] if heard.text and not words_of(rest) else heard.text

    async def heard(self, audio_id: str, played_ms: float | None) -> HeardSoFar:
        """Its listener stopped at ``played_ms`` (None: heard all that was sent): it says no more, and is remembered so.

        ``audio_id`` is one of its own.
        """
        choice = self._audio_ids.index(audio_id)
        async with self._remembering:
            heard = self._cut[choice] = self._turn.playhead(choice).heard(played_ms)
            stopped = self._turn.stop(choice)
        if stopped and self._ears is not None and self._ears.continuity is not None and choice == 0:
            self._ears.continuity.reset()
        self._service.metrics.cancelled()
        await self._remember(choice, heard.text)
        return heard

    async def _remember(self, choice: int, transcript: str) -> None:
        """Keep what was heard; a client that has named a moment knows better than we do."""
        if self._transcripts[choice]:
            await asyncio.shield(self._keep_turn(choice, transcript))

    async def _keep_turn(self, choice: int, transcript: str) -> None:
        memory, tenant, audio_id = self._service.memory, self._caller.tenant, self._audio_ids[choice]
        async with self._remembering:
            text = self._cut[choice].text if choice in self._cut else transcript
            turn = SpokenTurn(
                text, self._voicing.dialog_seed, self._voicing.reply_index, self._expires_at, self._dialog
            )
            await memory.remember(tenant, audio_id, turn)
            # Of a long reply this takes a while; nobody else looks at it meanwhile.
            record = await asyncio.to_thread(self._turn.playhead(choice).record)
            await memory.keep_words(tenant, audio_id, record)

    async def _keep_carry(self) -> None:
        """Leave the dialog's next reply something to lean on; it was spoken to its end."""
        kept = self._ears.kept(self._service.clock.unix_s()) if self._ears is not None else None
        if kept is None:
            return
        service, shelf = self._service, self._service.library.shelf
        service.note_carry((self._caller.tenant, kept.voice, self._dialog), kept)
        try:
            await asyncio.shield(shelf.keep_carry(self._caller.tenant, self._dialog, kept, CARRY_TTL_S))
        except Fault as fault:
            log.warning("a carry could not be kept: %s", fault.code)

    # ------------------------------------------------------------ whole
    async def whole(self, request_id: str) -> ASGIApp:
        """The ``chat.completion`` object."""
        messages = [MessageBuilder() for _ in range(self._wish.n)]
        encoders = [self._service.codec.start(self._wish.format) for _ in range(self._wish.n)]
        audio: list[list[bytes]] = [[] for _ in range(self._wish.n)]
        words: list[list[WordTime]] = [[] for _ in range(self._wish.n)]
        finish = ["stop"] * self._wish.n
        opened: ChatOpened | None = None
        async with aclosing(self._events()) as events:
            async for event in events:
                if isinstance(event, ChatOpened):
                    opened = event
                elif isinstance(event, Passed):
                    messages[event.choice].add(event.delta)
                elif isinstance(event, ChoiceOver):
                    finish[event.choice] = event.finish_reason
                elif isinstance(event, WordsTimed):
                    words[event.choice] += event.times
                elif isinstance(event, Heard) and event.audio is not None:
                    encoder = encoders[event.choice]
                    audio[event.choice].append(await asyncio.to_thread(encoder.feed, event.audio.pcm))
        choices = []
        for index in range(self._wish.n):
            if self._transcripts[index] and not self._turn.samples(index):
                # Nothing of it could be spoken; a file without a single sample is none.
                audio[index].append(await asyncio.to_thread(encoders[index].feed, _SILENCE))
            audio[index].append(await asyncio.to_thread(encoders[index].finish))
            choices.append(
                {
                    "index": index,
                    "message": messages[index].message(self._audio_object(index, b"".join(audio[index]))),
                    "logprobs": None,
                    "finish_reason": finish[index],
                    **({"words": word_marks(words[index])} if self._wish.word_times else {}),
                }
            )
        body: dict[str, Any] = {
            "id": opened.id if opened else f"chatcmpl-{self._audio_ids[0][6:]}",
            "object": "chat.completion",
            "created": opened.created if opened else int(self._service.clock.unix_s()),
            "model": opened.model if opened else "",
            "choices": choices,
            "usage": self._usage(),
            "system_fingerprint": opened.system_fingerprint if opened else None,
        }
        content = to_json(body)
        # Megabytes of audio are not left lying for a client that does not read them.
        return BodyStream(
            in_pieces(content),
            headers={
                "content-type": "application/json",
                "content-length": str(len(content)),
                "x-request-id": request_id,
                DIALOG_HEADER: self._dialog,
                MODE_HEADER: self.mode,
            },
            slow_consumer_s=self._service.config.server.slow_consumer_s,
        )

    def _audio_object(self, choice: int, data: bytes) -> dict[str, Any] | None:
        transcript = self._transcripts[choice]
        if not transcript:
            return None
        return {
            "id": self._audio_ids[choice],
            "data": base64.b64encode(data).decode("ascii"),
            "expires_at": self._expires_at,
            "transcript": transcript,
        }

    def _usage(self) -> dict[str, Any]:
        samples = sum(self._turn.samples(choice) for choice in range(self._wish.n))
        text_chars = sum(map(len, self._transcripts))
        return spoken_usage(self._turn.usage, audio_tokens(samples, SAMPLE_RATE_HZ), self._prompt_chars, text_chars)

    # ------------------------------------------------------------ streamed
    def streamed(self, stack: AsyncExitStack, request_id: str) -> ASGIApp:
        """Server-sent ``chat.completion.chunk`` objects. Only ``data:`` lines and comments: SDKs fail on others."""
        server = self._service.config.server
        return BodyStream(
            self._lines(),
            cleanup=stack,
            headers={
                **self._upstream_headers,
                "content-type": "text/event-stream; charset=utf-8",
                **SSE_HEADERS,
                "x-request-id": request_id,
                DIALOG_HEADER: self._dialog,
                MODE_HEADER: self.mode,
            },
            slow_consumer_s=server.slow_consumer_s,
            idle_bytes=b": keep-alive\n\n",
            idle_s=server.keep_alive_comment_s,
        )

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        chunks: ChatChunks | None = None
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    if isinstance(event, ChatOpened):
                        chunks = self._chunks(event)
                        yield _data(chunks.open(self._wish.n))
                    elif chunks is not None and (lines := _data(self._written(chunks, event))):
                        yield lines
                        self._note_sent(event)
            if chunks is not None:
                yield _data(chunks.usage(self._usage())) + b"data: [DONE]\n\n"
        except Exception as error:
            # SDKs take a body that merely ends for a whole one.
            fault = error if isinstance(error, Fault) else Fault("Internal error.")
            self._service.answered(fault)
            yield b"data: " + to_json(openai_error(fault)) + b"\n\n"
            raise

    def _note_sent(self, event: TurnEvent) -> None:
        if isinstance(event, Heard) and event.audio is not None and event.audio.ready_s is not None:
            waited_s = asyncio.get_running_loop().time() - event.audio.ready_s
            self._service.metrics.chunk_waited(waited_s * 1000)

    def _chunks(self, opened: ChatOpened) -> ChatChunks:
        return ChatChunks(
            id=opened.id,
            created=opened.created,
            model=opened.model,
            include_usage=self._wish.include_usage,
            mirror_content=self._service.config.chat.mirror_content,
            system_fingerprint=opened.system_fingerprint,
        )

    def _written(self, chunks: ChatChunks, event: TurnEvent) -> list[dict[str, Any]]:
        """The chunks of one event."""
        if isinstance(event, Words):
            return chunks.transcript(event.choice, event.text, self._audio_ids[event.choice])
        if isinstance(event, Passed):
            return chunks.passed(event.choice, event.delta)
        if isinstance(event, ChoiceOver):
            return chunks.close(event.choice, event.finish_reason, self._expires_at)
        if isinstance(event, WordsTimed) and self._wish.word_times:
            return chunks.beside(event.choice, words=word_marks(event.times))
        if isinstance(event, Heard):
            if event.audio is not None:
                return chunks.audio(event.choice, self._pcm16(event.audio.pcm))
            if self._wish.segments and isinstance(event.event, SegmentStarted | SegmentEnded):
                return chunks.beside(event.choice, segment=self._segment_mark(event.event))
        return []

    def _segment_mark(self, event: SegmentStarted | SegmentEnded) -> dict[str, Any]:
        """The extension beside ``delta`` that marks segments (asked for with ``audio.segments: true``)."""
        segment = event.segment
        mark: dict[str, Any] = {"index": segment.index, "start": segment.start, "end": segment.end}
        text = {"text": segment.text, "spoken": segment.spoken.strip()}
        if isinstance(event, SegmentStarted):
            start_ms = event.first_sample * 1000 // SAMPLE_RATE_HZ
            return {
                **mark,
                "type": "started",
                **text,
                "seed": event.seed,
                "voice": event.voice,
                "language": event.language,
                "start_ms": start_ms,
            }
        mark |= {"type": "ended", "duration_ms": event.samples * 1000 // SAMPLE_RATE_HZ}
        if self.mode == "live":
            # It had only begun to be written when it started.
            mark |= text
        return mark | ({"error": event.fault.message} if event.fault is not None else {})

    def _pcm16(self, pcm: Pcm) -> bytes:
        return self._service.codec.start("pcm", streaming=True).feed(pcm)


def word_marks(times: Iterable[WordTime]) -> list[dict[str, Any]]:
    """The extension that tells when words sound (asked for with ``audio.word_times: true``).

    ``start`` and ``end`` are characters of the transcript, the times milliseconds from the beginning of the audio.
    """
    return [
        {"word": time.word, "start": time.start, "end": time.end, "start_ms": time.start_ms, "end_ms": time.end_ms}
        for time in times
    ]


def _data(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + to_json(chunk) + b"\n\n" for chunk in chunks)
