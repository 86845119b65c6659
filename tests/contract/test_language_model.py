"""What every language model adapter promises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from adapters.llm.chat_events import ChatReader
from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from adapters.llm.scripted import ScriptedLanguageModel, ScriptedSettings
from adapters.llm.sse import SseParser
from sidecar.faults import UpstreamFault, UpstreamRefused, UpstreamUnreachable
from sidecar.ports import ChatDelta, ChatOpened, ChatUsage, LanguageModel
from tests.adapters.llm.helpers import JumpingClock, StoppedClock, Taken, ask, read, refusing_port, take
from tests.upstream import Upstream


@dataclass
class Case:
    """One adapter, and the names of models that behave as the tests need them."""

    llm: LanguageModel
    plain: str
    echo: str
    unknown: str
    stuck: str
    """Never finishes (with ``stuck_llm``)."""
    stuck_llm: LanguageModel
    dead: LanguageModel
    """Cannot be reached."""


async def _openai() -> AsyncIterator[Case]:
    with refusing_port() as port:
        dead = OpenAiChat(OpenAiChatSettings(f"http://127.0.0.1:{port}/v1"))
        async with Upstream() as up:
            llm = OpenAiChat(OpenAiChatSettings(up.base_url))
            yield Case(llm, "fake-plain", "fake-echo", "fake-unknown", "fake-stall", llm, dead)
            await llm.close()
            await dead.close()


async def _scripted() -> AsyncIterator[Case]:
    llm = ScriptedLanguageModel(ScriptedSettings(), JumpingClock())
    stuck = ScriptedLanguageModel(ScriptedSettings(), StoppedClock())
    dead = ScriptedLanguageModel(ScriptedSettings(), JumpingClock())
    await dead.close()
    yield Case(llm, "scripted", "scripted-echo", "scripted-unknown", "scripted", stuck, dead)
    await llm.close()
    await stuck.close()


@pytest.fixture(params=[_openai, _scripted], ids=["openai_chat", "scripted"])
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Case]:
    async for made in request.param():
        yield made


async def test_opened_comes_first_then_deltas_then_usage(case: Case) -> None:
    taken = await take(await case.llm.stream(ask(case.plain), {}))
    assert taken.fault is None
    kinds = [type(event) for event in taken.events]
    assert kinds[0] is ChatOpened
    assert kinds[-1] is ChatUsage
    assert set(kinds[1:-1]) == {ChatDelta}
    assert taken.opened.model == case.plain
    assert taken.opened.id
    assert taken.opened.created > 0
    assert taken.finish == {0: "stop"}
    assert len(taken.text) > 40


async def test_usage_counts_the_pieces(case: Case) -> None:
    taken = await take(await case.llm.stream(ask(case.plain), {}))
    (usage,) = taken.usage
    pieces = [event for event in taken.events if isinstance(event, ChatDelta) and event.text]
    assert usage["completion_tokens"] == len(pieces)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_says_what_it_was_given(case: Case) -> None:
    said = 'Grüße, 世界! 👩‍👩‍👧\nTwo lines: "quoted" \\ and  spaced.'
    taken = await take(await case.llm.stream(ask(case.echo, said), {}))
    assert taken.text == said


async def test_limit_of_tokens_ends_with_length(case: Case) -> None:
    taken = await take(await case.llm.stream(ask(case.plain, max_completion_tokens=3), {}))
    assert taken.finish == {0: "length"}
    assert sum(isinstance(event, ChatDelta) and bool(event.text) for event in taken.events) == 3


@pytest.mark.parametrize("stop", ["!", ["never written", "!"]])
async def test_stop_ends_the_text(case: Case, stop: str | list[str]) -> None:
    whole = await take(await case.llm.stream(ask(case.plain), {}))
    taken = await take(await case.llm.stream(ask(case.plain, stop=stop), {}))
    assert taken.text == whole.text.split("!")[0]
    assert taken.finish == {0: "stop"}


async def test_choices_are_kept_apart(case: Case) -> None:
    taken = await take(await case.llm.stream(ask(case.plain, n=3), {}))
    assert taken.finish == {0: "stop", 1: "stop", 2: "stop"}
    assert set(taken.texts) == {0, 1, 2}
    assert len(set(taken.texts.values())) == 1


async def test_unknown_model_is_refused_as_openai_does(case: Case) -> None:
    with pytest.raises(UpstreamRefused) as caught:
        await case.llm.stream(ask(case.unknown), {})
    assert caught.value.upstream_status == 404
    assert caught.value.upstream_error["code"] == "model_not_found"
    assert set(caught.value.upstream_error) == {"message", "type", "param", "code"}
    assert case.unknown in caught.value.message


async def test_bad_request_is_refused(case: Case) -> None:
    with pytest.raises(UpstreamRefused) as caught:
        await case.llm.stream({"model": case.plain, "messages": "hello"}, {})
    assert caught.value.upstream_status == 400
    assert caught.value.upstream_error["type"] == "invalid_request_error"


async def test_ends_for_good(case: Case) -> None:
    stream = await case.llm.stream(ask(case.plain), {})
    await take(stream)
    assert (await take(stream)).events == []
    await stream.aclose()
    await stream.aclose()
    assert (await take(stream)).events == []


async def test_closing_early_ends_the_stream(case: Case) -> None:
    stream = await case.llm.stream(ask(case.plain), {})
    events = aiter(stream)
    assert isinstance(await anext(events), ChatOpened)
    await stream.aclose()
    assert await anext(events, None) is None


async def test_closing_wakes_a_reader_in_another_task(case: Case) -> None:
    stream = await case.stuck_llm.stream(ask(case.stuck), {})
    opened = asyncio.Event()
    taken = Taken()

    async def reading() -> None:
        async for event in stream:
            taken.add(event)
            opened.set()

    task = asyncio.create_task(reading())
    await opened.wait()
    await asyncio.sleep(0.01)
    await stream.aclose()
    await asyncio.wait_for(task, 10)
    assert taken.finish == {}


async def test_a_cancelled_reader_ends_the_stream(case: Case) -> None:
    stream = await case.stuck_llm.stream(ask(case.stuck), {})
    opened = asyncio.Event()

    async def reading() -> None:
        async for _ in stream:
            opened.set()

    task = asyncio.create_task(reading())
    await opened.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await take(stream)).events == []
    await stream.aclose()


async def test_many_at_once_do_not_mix(case: Case) -> None:
    async def one(number: int) -> str:
        return (await take(await case.llm.stream(ask(case.echo, f"I am {number}."), {}))).text

    assert await asyncio.gather(*map(one, range(20))) == [f"I am {number}." for number in range(20)]


async def test_forward_gives_the_json_answer(case: Case) -> None:
    body = json.dumps(ask(case.echo, "Bonjour, ça va ?")).encode()
    answer = await case.llm.forward("/chat/completions", body, {})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    completion = json.loads(await read(answer))
    assert completion["object"] == "chat.completion"
    assert completion["choices"][0]["message"]["content"] == "Bonjour, ça va ?"
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert completion["usage"]["completion_tokens"] > 0
    await answer.aclose()


async def test_forward_gives_the_same_stream(case: Case) -> None:
    request = ask(case.plain, n=2, stream=True, stream_options={"include_usage": True})
    answer = await case.llm.forward("/chat/completions", json.dumps(request).encode(), {})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    raw = await read(answer)
    assert raw.endswith(b"data: [DONE]\n\n")
    reader, taken = ChatReader(choices=2), Taken()
    for event in SseParser().feed(raw):
        for read_event in reader.take(event):
            taken.add(read_event)
    for read_event in reader.end():
        taken.add(read_event)
    direct = await take(await case.llm.stream(ask(case.plain, n=2), {}))
    assert (taken.texts, taken.finish, taken.usage) == (direct.texts, direct.finish, direct.usage)


async def test_forward_hands_errors_over(case: Case) -> None:
    answer = await case.llm.forward("/chat/completions", json.dumps(ask(case.unknown)).encode(), {})
    assert answer.status == 404
    assert json.loads(await read(answer))["error"]["code"] == "model_not_found"
    answer = await case.llm.forward("/chat/completions", b'{"model": ', {})
    assert answer.status == 400
    assert set(json.loads(await read(answer))["error"]) == {"message", "type", "param", "code"}


async def test_forward_can_be_closed_early(case: Case) -> None:
    body = json.dumps(ask(case.stuck, stream=True)).encode()
    answer = await case.stuck_llm.forward("/chat/completions", body, {})
    chunks = aiter(answer)
    assert await anext(chunks)
    await answer.aclose()
    await answer.aclose()
    assert await anext(chunks, None) is None


async def test_models_are_listed_and_forwarded(case: Case) -> None:
    names = [card["id"] for card in await case.llm.models()]
    assert case.plain in names
    assert case.unknown not in names
    listing = json.loads(await read(await case.llm.forward("/models", None, {})))
    assert listing["object"] == "list"
    assert [card["id"] for card in listing["data"]] == names
    card = json.loads(await read(await case.llm.forward(f"/models/{case.plain}", None, {})))
    assert card["id"] == case.plain


async def test_what_cannot_be_reached_says_so(case: Case) -> None:
    with pytest.raises(UpstreamUnreachable) as caught:
        await case.dead.stream(ask(case.plain), {})
    assert caught.value.status == 502
    with pytest.raises(UpstreamUnreachable):
        await case.dead.forward("/chat/completions", b"{}", {})
    with pytest.raises(UpstreamFault):
        await case.dead.models()


async def test_close_is_idempotent_and_final(case: Case) -> None:
    await take(await case.llm.stream(ask(case.plain), {}))
    await case.llm.close()
    await case.llm.close()
    with pytest.raises(UpstreamUnreachable):
        await case.llm.stream(ask(case.plain), {})
    with pytest.raises(UpstreamUnreachable):
        await case.llm.forward("/models", None, {})
    with pytest.raises(UpstreamUnreachable):
        await case.llm.models()
