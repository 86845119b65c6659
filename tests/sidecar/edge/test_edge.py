"""The edge client against a scripted server, with the decoder of a tiny checkpoint."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from adapters.engines.qwen3_tts.codes_decoder import CodesDecoder
from sidecar.cli import commands
from sidecar.clock import SystemClock
from sidecar.codec_wire import Packet, pack, start_event
from sidecar.edge import EdgeClient, EdgeRequest
from sidecar.edge.client import PATH, address_of
from sidecar.edge.commands import EdgeOptions, figures, run_edge
from sidecar.edge.parity import parity
from sidecar.edge.play import PLAYERS, Player, player_command
from sidecar.edge.session import EdgeReport
from sidecar.faults import ConfigError, EngineFault, EngineLost
from tests.adapters.engines.qwen3_tts import tiny
from tests.adapters.engines.qwen3_tts.codec_tiny import write_codec
from tests.sidecar.edge.scripted import Decoder, Script, codes_of, load, speaking

TEXT = "Good morning. The train leaves. Bye."
SEED = EdgeRequest(7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("checkpoint") / "tiny", kind="custom_voice")


@pytest.fixture(scope="module")
def decoder(folder: Path) -> Decoder:
    return load(folder)


def one_pass(decoder: Decoder, text: str, seed: int = 7) -> np.ndarray[Any, np.dtype[np.float32]]:
    units = [part.strip() + "." for part in text.split(".") if part.strip()]
    return np.concatenate([decoder.decode(decoder.new_state(), codes_of(unit, seed)) for unit in units])


async def heard(url: str, decoder: Decoder, text: str | AsyncIterator[str] = TEXT) -> tuple[Any, EdgeReport]:
    async with EdgeClient(url, decoder, SystemClock()) as client:
        pieces = [pcm async for pcm in client.speak(text, SEED)]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32), client.report


# ---------------------------------------------------------------- speech
@pytest.mark.parametrize("packets", [(1,), (2, 1, 3), (40,)])
async def test_what_is_heard_is_the_one_pass_decode(packets: tuple[int, ...], decoder: Decoder) -> None:
    script = Script(decoder, packets)
    async with speaking(script) as url:
        pcm, report = await heard(url, decoder)
    expected = one_pass(decoder, TEXT)
    assert pcm.shape == expected.shape
    assert np.abs(pcm - expected).max() < 1e-5
    assert np.abs(expected).max() > 0.01, "there is something to hear"
    assert (report.units, report.frames) == (3, len(expected) // 1_920)
    assert script.heard[0] == {
        "type": "session.config", "seed": 7, "stream_audio": True, "response_format": "pcm",
        "output_mode": "codec_tokens",
    }  # fmt: skip
    assert report.first_packet_ms is not None
    assert report.first_audio_ms is not None
    assert report.smooth_start_ms is not None
    assert 0 < report.first_packet_ms <= report.first_audio_ms <= report.smooth_start_ms
    assert report.sound_s == pytest.approx(report.frames * 0.08)
    assert report.decode_factor is not None
    assert report.decode_factor > 0


async def test_one_packet_a_frame_stays_under_450_bytes_a_second(decoder: Decoder) -> None:
    # 39 bytes a frame are 487 bytes a second; two frames a packet are 444.
    async with speaking(Script(decoder, (2,), frames=100)) as url:
        _, report = await heard(url, decoder, "One.")
    assert report.wire_bytes_per_s is not None
    assert report.wire_bytes_per_s < 450


async def test_text_may_come_in_pieces(decoder: Decoder) -> None:
    async def pieces() -> AsyncIterator[str]:
        for word in TEXT.split(" "):
            yield word + " "

    async with speaking(Script(decoder)) as url:
        pcm, _ = await heard(url, decoder, pieces())
    assert len(pcm) == len(one_pass(decoder, TEXT))


async def test_a_text_that_fails_to_come_ends_the_utterance(decoder: Decoder) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "Hello"
        raise OSError("the pipe is gone")

    async with speaking(Script(decoder)) as url:
        with pytest.raises(OSError, match="the pipe is gone"):
            await heard(url, decoder, broken())


async def test_several_utterances_on_one_connection(decoder: Decoder) -> None:
    async with speaking(Script(decoder)) as url, EdgeClient(url, decoder, SystemClock()) as client:
        for text in ("One.", "Two. Three."):
            pcm = np.concatenate([piece async for piece in client.speak(text, SEED)])
            assert np.abs(pcm - one_pass(decoder, text)).max() < 1e-5


async def test_a_reset_starts_the_decoder_anew(decoder: Decoder) -> None:
    async with speaking(Script(decoder, resets_at=3)) as url:
        pcm, _ = await heard(url, decoder, "One.")
    codes = codes_of("One.", 7)
    parts = [decoder.decode(decoder.new_state(), part) for part in (codes[:3], codes[3:])]
    assert np.abs(pcm - np.concatenate(parts)).max() < 1e-5
    assert np.abs(pcm - one_pass(decoder, "One.")).max() > 1e-4


async def test_unknown_events_are_passed_over(decoder: Decoder) -> None:
    script = Script(decoder, before=[{"type": "session.hello"}, {"no": "type"}])
    async with speaking(script) as url:
        pcm, report = await heard(url, decoder, "One.")
    assert len(pcm)
    assert report.unknown_events == 2


async def test_nothing_to_say_is_silence(decoder: Decoder) -> None:
    async with speaking(Script(decoder)) as url:
        pcm, report = await heard(url, decoder, "  ")
    assert len(pcm) == 0
    assert (report.first_audio_ms, report.decode_factor, report.wire_bytes_per_s) == (None, None, None)
    assert any("never" in line for line in figures(report, played=True))


async def test_a_cancel_ends_it(decoder: Decoder) -> None:
    script = Script(decoder, frames=50, hold=asyncio.Event())
    assert script.hold is not None
    async with speaking(script) as url, EdgeClient(url, decoder, SystemClock()) as client:
        frames = 0
        async for pcm in client.speak("One.", SEED):
            frames += len(pcm) // 1_920
            await client.cancel()
            await script.cancelled.wait()
            script.hold.set()
        assert frames < 50
        assert client.report.cancelled


async def test_leaving_early_does_not_leave_the_rest_for_the_next(decoder: Decoder) -> None:
    script = Script(decoder, frames=200, hold=asyncio.Event())
    async with speaking(script) as url, EdgeClient(url, decoder, SystemClock()) as client:
        pieces = client.speak("One.", SEED)
        await anext(pieces)
        await pieces.aclose()
        with pytest.raises(EngineLost):
            await anext(client.speak("Two.", SEED))


# ---------------------------------------------------------------- trouble
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ({"start": {"codebook_size": 2_048, "decoder_id": "x"}}, "load the checkpoint"),
        ({"start": {"decoder_id": "qwen3-tts-12hz-0123456789abcdef"}}, "for the decoder"),
        ({"start": {"version": 2}}, "version"),
        ({"start": {"type": "audio.start"}}, "instead of codec tokens"),
        ({"start": {"type": "something"}}, "outside"),
        ({"off_by": 1}, "codec.done tells"),
        ({"before": [{"type": "codec.done"}]}, "without its codec.start"),
        ({"before": [{"type": "error", "message": "no codec tokens here"}]}, "no codec tokens here"),
        ({"done": {"error": True}}, "a unit failed"),
        ({"done": {"error": True}, "off_by": 1, "before": [{"type": "error", "message": "no voice"}]}, "no voice"),
    ],
)
async def test_what_cannot_be_decoded_is_said(script: dict[str, Any], says: str, decoder: Decoder) -> None:
    async with speaking(Script(decoder, **script)) as url:
        with pytest.raises(EngineFault, match=says):
            await heard(url, decoder, "One.")


async def test_the_same_decoder_may_be_told_of_a_larger_codebook_and_checks_itself(decoder: Decoder) -> None:
    async with speaking(Script(decoder, start={"codebook_size": 2_048})) as url:
        pcm, _ = await heard(url, decoder, "One.")
    assert len(pcm)

    class TooLarge(Script):
        async def _unit(self, connection: Any, *rest: Any) -> None:
            start = start_event(decoder_id=self.decoder.decoder_id)
            await connection.send(json.dumps(start))
            await connection.send(pack(Packet(0, np.full((1, 16), 1_000, np.int16))))

    async with speaking(TooLarge(decoder)) as url:
        with pytest.raises(EngineFault, match=r"0\.\.127"):
            await heard(url, decoder, "One.")


async def test_another_family_of_names_is_no_reason_to_refuse(decoder: Decoder) -> None:
    async with speaking(Script(decoder, start={"decoder_id": "some/name"})) as url:
        pcm, _ = await heard(url, decoder, "One.")
    assert len(pcm)


@pytest.mark.parametrize("frame", ["junk", "[]", b"junk"])
async def test_a_server_that_talks_nonsense(frame: str | bytes, decoder: Decoder) -> None:
    async def talk(connection: Any) -> None:
        await connection.recv()
        await connection.send(frame)
        await connection.wait_closed()

    script = Script(decoder)
    script.talk = talk  # type: ignore[method-assign]
    async with speaking(script) as url:
        with pytest.raises(EngineFault):
            await heard(url, decoder)


async def test_a_server_that_hangs_up(decoder: Decoder) -> None:
    async def talk(connection: Any) -> None:
        await connection.recv()
        await connection.send(json.dumps({"type": "error", "message": "too busy"}))
        await connection.close(1013)

    script = Script(decoder)
    script.talk = talk  # type: ignore[method-assign]
    async with speaking(script) as url:
        with pytest.raises(EngineLost, match=r"1013.*too busy"):
            await heard(url, decoder)


async def test_a_server_that_is_not_there(decoder: Decoder) -> None:
    with pytest.raises(ConfigError, match="cannot be reached"):
        await heard("ws://127.0.0.1:1", decoder)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://h:1", f"ws://h:1{PATH}"),
        ("http://h/", f"ws://h{PATH}"),
        ("https://h", f"wss://h{PATH}"),
        ("WSS://h/other", "wss://h/other"),
    ],
)
def test_addresses(url: str, address: str) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize("url", ["", "h:1", "ftp://h", "ws://"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigError):
        address_of(url)


# ---------------------------------------------------------------- the decoder alone
def test_only_the_speech_tokenizer_is_needed(tmp_path: Path) -> None:
    whole = write_codec(tmp_path)
    first, second = CodesDecoder.load(tmp_path), CodesDecoder.load(whole)
    assert first.decoder_id == second.decoder_id
    codes = codes_of("x", 1)
    assert np.array_equal(first.decode(first.new_state(), codes), second.decode(second.new_state(), codes))


def test_stage_0_is_not_read(folder: Path, tmp_path: Path, decoder: Decoder) -> None:
    bare = tmp_path / "bare"
    (bare / "speech_tokenizer").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / "speech_tokenizer" / name, bare / "speech_tokenizer" / name)
    assert CodesDecoder.load(bare).decoder_id == decoder.decoder_id


def test_names_tell_decoders_apart(tmp_path: Path, decoder: Decoder) -> None:
    other = tiny.write(tmp_path / "other", kind="base", seed=1)
    assert CodesDecoder.load(other).decoder_id != decoder.decoder_id
    same = tiny.write(tmp_path / "same", kind="base", seed=0)
    assert CodesDecoder.load(same).decoder_id == decoder.decoder_id, "the talker is no part of it"


def test_warming_up_leaves_no_trace(decoder: Decoder) -> None:
    codes = codes_of("x", 1)
    before = decoder.decode(decoder.new_state(), codes)
    decoder.warm_up()
    assert np.array_equal(decoder.decode(decoder.new_state(), codes), before)


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors"])
def test_a_broken_decoder_is_refused(broken: str, tmp_path: Path) -> None:
    file = write_codec(tmp_path) / broken
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ConfigError, match=broken):
        CodesDecoder.load(tmp_path)


# ---------------------------------------------------------------- parity
def test_parity_counts_what_differs() -> None:
    a = np.array([1_000, -2_000, 3_000, 0], "<i2")
    b = a + np.array([0, 1, 0, 0], "<i2")
    same, near = parity(a.tobytes(), a.tobytes()), parity(a.tobytes(), b.tobytes())
    assert same.good
    assert (same.differing, same.largest_step) == (0, 0)
    assert (near.differing, near.largest_step, near.good) == (1, 1, False)
    assert near.snr_db == pytest.approx(10 * np.log10((b.astype(float) ** 2).sum()))
    assert not parity(a.tobytes(), a[:3].tobytes()).good
    assert not parity(b"", b"").good
    assert parity(a.tobytes(), bytes(8)).snr_db == -np.inf


async def test_parity_holds_with_the_same_decoder(folder: Path, decoder: Decoder, tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "out.wav"
    async with speaking(Script(decoder, (1, 2))) as url:
        options = EdgeOptions(url, str(folder), SEED, wav=file, parity=True, threads=1)
        assert await run_edge(options, TEXT, said.append)
    assert said[-1].startswith("parity          good")
    with wave.open(str(file)) as written:
        assert (written.getframerate(), written.getnchannels()) == (24_000, 1)
        samples = np.frombuffer(written.readframes(10**7), "<i2")
    assert np.abs(samples / 32_768 - one_pass(decoder, TEXT)).max() < 1e-4


async def test_parity_fails_with_other_speech(folder: Path, decoder: Decoder) -> None:
    class Other(Script):
        async def _samples(self, connection: Any, codes: Any, where: dict[str, Any]) -> None:
            await super()._samples(connection, codes[::-1], where)

    said: list[str] = []
    async with speaking(Other(decoder)) as url:
        assert not await run_edge(EdgeOptions(url, str(folder), SEED, parity=True), "One.", said.append)
    assert "FAILED" in said[-1]
    said.clear()
    async with speaking(Other(decoder, start={"reference_frames": 20})) as url:
        assert not await run_edge(EdgeOptions(url, str(folder), SEED, parity=True), "One.", said.append)
    assert said[-1].startswith("parity          not to be had: the server's decoder has heard the voice's reference")


# ---------------------------------------------------------------- playing
async def test_a_player_gets_every_sample(
    folder: Path, decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "played.raw"
    code = f"import sys; open({str(out)!r}, 'wb').write(sys.stdin.buffer.read())"
    monkeypatch.setattr("sidecar.edge.commands.player_command", lambda: [sys.executable, "-c", code])
    said: list[str] = []
    async with speaking(Script(decoder)) as url:
        assert await run_edge(EdgeOptions(url, str(folder), SEED, play=True), TEXT, said.append)
    assert len(out.read_bytes()) == 2 * len(one_pass(decoder, TEXT))
    assert any(line.startswith("played from") for line in said)


async def test_a_player_that_ends_early_is_said() -> None:
    async def play() -> None:
        async with Player([sys.executable, "-c", "pass"]) as player:
            while True:
                await player.feed(bytes(1 << 20))

    with pytest.raises(EngineFault, match="player ended"):
        await play()


async def test_a_player_that_cannot_start() -> None:
    with pytest.raises(ConfigError, match="cannot be started"):
        async with Player(["/no/such/player"]):
            pass


def test_no_player_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="aplay"):
        player_command()
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name == "aplay" else None)
    assert player_command() == ["/bin/aplay", *PLAYERS["aplay"]]


# ---------------------------------------------------------------- the command
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--wav", "/no/such/folder/x.wav"], "no such folder"),
        (["--checkpoint", "/no/such/folder"], "no such folder"),
        (["--url", "nonsense"], "ws://host:port"),
    ],
)
def test_what_the_command_line_gets_wrong(words: list[str], says: str, folder: Path) -> None:
    base = ["edge", "--url", "ws://127.0.0.1:1", "--checkpoint", str(folder), "--text", "Hi."]
    done = CliRunner().invoke(commands, [*base, *words])
    assert done.exit_code != 0
    assert says in str(done.exception)


async def test_the_command_speaks_what_is_piped_in(folder: Path, decoder: Decoder, tmp_path: Path) -> None:
    code = (
        "import sys; from sidecar.cli import main; "
        "sys.argv = ['sidecar', 'edge', '--url', sys.argv[1], '--checkpoint', sys.argv[2], '--wav', sys.argv[3], "
        "'--seed', '7', '--voice', 'v', '--threads', '1']; main()"
    )
    script = Script(decoder)
    async with speaking(script) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, url, str(folder), str(tmp_path / "out.wav"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate(TEXT.encode())
    assert (process.returncode, err) == (0, b"")
    assert b"3 units" in out
    assert script.heard[0]["voice"] == "v"
    with wave.open(str(tmp_path / "out.wav")) as written:
        assert written.getnframes() == len(one_pass(decoder, TEXT))


def test_parity_needs_a_text(folder: Path) -> None:
    done = CliRunner().invoke(commands, ["edge", "--url", "ws://h", "--checkpoint", str(folder), "--parity"])
    assert "--text" in done.output
