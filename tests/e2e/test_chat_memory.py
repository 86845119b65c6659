"""What was said under an ``audio.id``: later turns, forgetting, tenants, and the chain of seeds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from tests.e2e.chat_helpers import (
    CHAT,
    Answer,
    audio_in,
    body_of,
    last_seen,
    lines_of,
    rows_free,
    spoken_as,
    sse,
    streamed,
    unbase64,
    upstream_of,
    whole,
)
from tests.e2e.conftest import Running, running
from voices.seeds import segment_seed

pytestmark = pytest.mark.asyncio(loop_scope="module")

TENANTS = ("anna:key-of-anna", "bert:key-of-bert")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for all: every test speaks its own dialogs."""
    async with running(upstream=True) as server:
        yield server


def turns(*assistant: Any, last: str = "second") -> list[Any]:
    return [{"role": "user", "content": "first"}, *assistant, {"role": "user", "content": last}]


def by_id(audio_id: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "audio": {"id": audio_id}, **more}


async def spoken_id(server: Running, script: str = "short", **more: Any) -> str:
    audio = (await whole(server, script, **more)).choices[0].message.audio
    assert audio is not None
    return audio.id


def as_tenant(server: Running, key: str) -> openai.AsyncOpenAI:
    return server.openai.with_options(api_key=key)


async def test_a_later_turn_refers_to_what_was_said(shared: Running) -> None:
    for first in (await spoken_id(shared), (await streamed(shared, "short")).choices[0].audio_id):
        assert first is not None
        expected = [["user", "first"], ["assistant", "Hi."], ["user", "second"]]
        answer = await whole(shared, "dump", messages=turns(by_id(first)))
        assert last_seen(shared).body["messages"] == [{"role": role, "content": text} for role, text in expected]
        assert answer.choices[0].message.audio is not None
        assert "Hi." in answer.choices[0].message.audio.transcript
        await streamed(shared, "dump", messages=turns(by_id(first, content=None, refusal=None)))
        assert last_seen(shared).body["messages"][1] == {"role": "assistant", "content": "Hi."}


async def test_the_sdks_own_message_can_be_sent_back(shared: Running) -> None:
    message = (await whole(shared, "plain")).choices[0].message
    assert message.audio is not None
    assert message.audio.data
    await whole(shared, "dump", messages=turns(message))
    seen = last_seen(shared)
    sent = seen.body["messages"][1]
    assert (sent["role"], sent["content"]) == ("assistant", message.audio.transcript)
    assert "audio" not in sent
    assert len(seen.raw) < 1_000


async def test_a_tool_call_with_words_goes_back_with_both(shared: Running) -> None:
    message = (await whole(shared, "tool_text")).choices[0].message
    result = {"role": "tool", "tool_call_id": "call_0", "content": "sunny"}
    await whole(shared, "plain", messages=[*turns(message, result)[:-1]])
    sent = last_seen(shared).body["messages"][1]
    assert sent["content"] == "Let me look."
    assert sent["tool_calls"][0]["function"]["name"] == "get_weather"


async def test_words_that_the_message_brings_are_used_when_nothing_is_remembered(shared: Running) -> None:
    for message in (
        by_id("audio_gone", content="My words."),
        {"role": "assistant", "audio": {"id": "audio_gone", "transcript": "My words.", "data": "AAAA"}},
    ):
        await whole(shared, "plain", messages=turns(message))
        assert last_seen(shared).body["messages"][1] == {"role": "assistant", "content": "My words."}


@pytest.mark.parametrize("modalities", [["text"], ["text", "audio"]])
async def test_an_unknown_id_is_404(shared: Running, modalities: list[str]) -> None:
    before = len(upstream_of(shared).requests)
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as caught:
            await whole(shared, "plain", messages=turns(by_id("audio_nope")), modalities=modalities, stream=stream)
        assert caught.value.code == "audio_expired"
        assert caught.value.param == "messages[1].audio.id"
        assert caught.value.type == "invalid_request_error"
    assert len(upstream_of(shared).requests) == before


async def test_a_reference_that_is_none_is_400(shared: Running) -> None:
    before = len(upstream_of(shared).requests)
    odd: list[Any] = [{}, {"id": 5}, {"id": ""}, "audio_1", {"id": "a" * 129}, []]
    for audio in odd:
        with pytest.raises(openai.BadRequestError) as caught:
            await whole(shared, "plain", messages=turns({"role": "assistant", "audio": audio}))
        assert caught.value.param == "messages[1].audio"
    many = [by_id("audio_x", content="a") for _ in range(1_001)]
    with pytest.raises(openai.BadRequestError, match="more than 1000"):
        await whole(shared, "plain", messages=turns(*many))
    assert len(upstream_of(shared).requests) == before


async def test_a_text_only_request_may_refer_to_a_spoken_turn(shared: Running) -> None:
    audio_id = await spoken_id(shared)
    for modalities in (["text"], None):
        answer = await whole(shared, "plain", messages=turns(by_id(audio_id)), modalities=modalities, top_p=0.5)
        assert answer.choices[0].message.content
        body = last_seen(shared).body
        assert body["messages"][1] == {"role": "assistant", "content": "Hi."}
        assert (body["top_p"], body["modalities"]) == (0.5, modalities)


async def test_what_has_expired_is_forgotten(start: Any) -> None:
    async with start(upstream=True, chat__dialog_ttl_s=1) as server:
        audio_id = await spoken_id(server)
        await whole(server, "plain", messages=turns(by_id(audio_id)))
        async with asyncio.timeout(10):
            while await server.service.memory.recall("local", [audio_id]):
                await asyncio.sleep(0.02)
        with pytest.raises(openai.NotFoundError):
            await whole(server, "plain", messages=turns(by_id(audio_id)))


async def test_another_tenants_id_is_as_unknown_as_any(start: Any) -> None:
    async with start(upstream=True, auth__api_keys=TENANTS) as server:
        anna, bert = (as_tenant(server, entry.split(":")[1]) for entry in TENANTS)
        create: Any = anna.chat.completions.create
        audio_id = (await create(**body_of("short"))).choices[0].message.audio.id
        await create(**body_of("plain", messages=turns(by_id(audio_id))))
        errors = []
        create = bert.chat.completions.create
        for asked in (audio_id, "audio_" + "0" * 32):
            with pytest.raises(openai.NotFoundError) as caught:
                await create(**body_of("plain", messages=turns(by_id(asked))))
            errors.append(str(caught.value.body).replace(asked, "ID"))
        assert errors[0] == errors[1]


async def test_a_store_that_is_away_stops_no_speech(start: Any) -> None:
    async with start(upstream=True) as server:
        audio_id = await spoken_id(server)
        await server.service.store.close()
        await streamed(server, "plain")
        await whole(server, "plain")
        brought = {"role": "assistant", "audio": {"id": audio_id, "transcript": "My words."}}
        await whole(server, "plain", messages=turns(brought, by_id(audio_id, content="And more.")))
        assert [m["content"] for m in last_seen(server).body["messages"][1:3]] == ["My words.", "And more."]
        for modalities in (["text"], ["text", "audio"]):
            with pytest.raises(openai.InternalServerError) as caught:
                await whole(server, "plain", messages=turns(by_id(audio_id)), modalities=modalities)
            assert (caught.value.status_code, caught.value.code) == (503, "store_unavailable")
            assert caught.value.response.headers["x-should-retry"] == "true"


async def test_an_answer_that_was_cut_off_is_remembered_as_far_as_it_was_sent(start: Any) -> None:
    async with start(upstream=True, engine__tone_realtime_factor=1, chat__first_by_clause=False) as server:
        asked = body_of("gate?after=99&text=Yes it is. But there is a great deal more to be said of it.", stream=True)
        audio_id = None
        async with sse(server, asked) as response:
            async for chunk in lines_of(response):
                audio_id = audio_id or audio_in(chunk, "id")
                if audio_in(chunk, "data"):
                    break
        await upstream_of(server).until(lambda up: up.aborted == 1)
        await rows_free(server)
        assert audio_id is not None
        async with asyncio.timeout(10):
            while not await server.service.memory.recall("local", [audio_id]):
                await asyncio.sleep(0.005)
        await whole(server, "plain?text=Ok.", messages=turns(by_id(audio_id)))
        seen = [message["content"] for message in last_seen(server).body["messages"]]
        assert seen in (["first", "Yes", "second"], ["first", "second"]), "whole words that were sent, or nothing"


async def test_an_answer_that_broke_off_is_remembered_too(shared: Running) -> None:
    answer = Answer()
    with contextlib.suppress(httpx.RemoteProtocolError):
        async with sse(shared, body_of("cut?after=99", stream=True)) as response:
            async for chunk in lines_of(response):
                if "error" not in chunk:
                    answer.feed(chunk)
    choice = answer.choices[0]
    assert choice.finish_reason is None
    assert choice.audio_id is not None
    await whole(shared, "plain", messages=turns(by_id(choice.audio_id)))
    assert last_seen(shared).body["messages"][1]["content"] == choice.transcript


# ---------------------------------------------------------------- seeds
def seeds(answer: Answer, choice: int = 0) -> list[int]:
    return [mark["seed"] for mark in answer.choices[choice].marks if mark["type"] == "started"]


async def test_the_seeds_of_a_dialog_go_on_from_turn_to_turn(shared: Running) -> None:
    first = await streamed(shared, "plain", **spoken_as("pcm16", segments=True, seed=1234))
    assert seeds(first) == [segment_seed(1234, 0, index) for index in range(len(seeds(first)))]
    second_id = first.choices[0].audio_id
    assert second_id is not None
    for reply in (1, 2, 3):
        messages = turns(by_id(second_id))
        following = await streamed(shared, "plain", messages=messages, **spoken_as("pcm16", segments=True))
        assert seeds(following) == [segment_seed(1234, reply, index) for index in range(len(seeds(following)))]
        second_id = following.choices[0].audio_id
        assert second_id is not None


async def test_the_latest_turn_that_is_known_gives_the_dialog(shared: Running) -> None:
    old = await spoken_id(shared, **spoken_as("mp3", seed=1))
    new = await spoken_id(shared, **spoken_as("mp3", seed=2))
    messages = turns(by_id(old), by_id(new), by_id("audio_gone", content="words"))
    answer = await streamed(shared, "short", messages=messages, **spoken_as("pcm16", segments=True))
    assert seeds(answer) == [segment_seed(2, 1, 0)]


async def test_the_same_seed_sounds_the_same_and_a_new_dialog_does_not(shared: Running) -> None:
    async def pcm(**more: Any) -> bytes:
        audio = (await whole(shared, "plain", **spoken_as("pcm16", **more))).choices[0].message.audio
        assert audio is not None
        return unbase64(audio.data)

    one, again, other, fresh = [await pcm(seed=7), await pcm(seed=7), await pcm(seed=8), await pcm()]
    assert one == again
    assert len({one, other, fresh}) == 3
    streamed_pcm = (await streamed(shared, "plain", **spoken_as("pcm16", seed=7))).choices[0].pcm
    assert streamed_pcm == one


async def test_other_members_of_messages_and_requests_stay(shared: Running) -> None:
    audio_id = await spoken_id(shared)
    message = by_id(audio_id, name="bot", x_custom={"a": 1})
    asked = body_of("plain", messages=turns(message))
    assert (await shared.http.post(CHAT, json=asked)).status_code == 200
    assert last_seen(shared).body["messages"][1] == {
        "role": "assistant", "name": "bot", "x_custom": {"a": 1}, "content": "Hi.",
    }  # fmt: skip
