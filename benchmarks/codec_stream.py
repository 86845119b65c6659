"""Whether codec tokens cost the same at the end of a long utterance as at the beginning, at both ends of the wire.

    python -m benchmarks.codec_stream [--seconds 10 120] [--rounds 3]

A tiny random-weight checkpoint speaks for so many seconds; its frames are packed as the server packs them, unpacked and
decoded with carried state as the edge client does it. CPU time for each second of sound, least of the rounds; the last
column compares the longest with the shortest.
"""

from __future__ import annotations

import argparse
import queue
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from adapters.engines.qwen3_tts.checkpoint import open_checkpoint
from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.codes_decoder import CodesDecoder
from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.requests import Ask, Ended, Event, Failed, Limits, Samples
from adapters.engines.qwen3_tts.runtime import Runtime
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.stages import Prompt, Sampling
from adapters.engines.qwen3_tts.tokenizer import TextTokenizer
from sidecar.codec_wire import CodecFormat, CodecReader, CodecWriter

FRAME_RATE_HZ = 12.5
POSITIONS = 2_048


def runtime(folder: Path) -> Runtime:
    """One row that nothing ends before its frames are drawn: random weights end when they like."""
    checkpoint = open_checkpoint(folder)
    roles = TextTokenizer.load(checkpoint.folder, checkpoint.talker).role_ids

    def load() -> Stages:
        talker = Stage0.load(checkpoint, roles, positions=POSITIONS)
        return Stages(talker, Code2Wav(checkpoint.codec.decoder, checkpoint.codec_weights))

    return Runtime(load, Limits(min_cap_frames=POSITIONS, guard=None))


def spoken(speaker: Runtime, frames: int) -> tuple[list[bytes], float]:
    """The packets of an utterance of so many frames, and the CPU seconds they took."""
    began = time.process_time()
    writer = CodecWriter()
    packets: list[bytes] = []
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    prompt = Prompt(tuple(range(10, 40)), speaker="ryan", sampling=Sampling(seed=1, min_frames=1 << 20))
    ticket = speaker.submit(Ask(prompt, max_frames=frames, output="codes"), events.put)
    while not isinstance(event := events.get(), Ended):
        if isinstance(event, Failed):
            raise event.fault
        if isinstance(event, Samples) and event.codes is not None:
            packets.append(writer.frames(event.codes))
            ticket.took(len(event.codes) * 1_920)
    packets.append(writer.end())
    assert writer.total_frames == frames
    return packets, time.process_time() - began


def decoded(decoder: CodesDecoder, packets: Sequence[bytes]) -> tuple[int, float]:
    """Samples made of these packets, and the CPU seconds that took."""
    state = decoder.new_state()
    reader, samples = CodecReader(CodecFormat()), 0
    began = time.process_time()
    for packet in packets:
        codes = reader.packet(packet).codes
        if len(codes):
            samples += len(decoder.decode(state, codes))
    return samples, time.process_time() - began


def measured(folder: Path, seconds: Sequence[float], rounds: int) -> None:
    """Print the table."""
    speaker, decoder = runtime(folder), CodesDecoder.load(folder, threads=1)
    speaker.start().result()
    print("seconds  bytes/s  server CPU ms/s  client CPU ms/s")
    table = []
    try:
        for length in seconds:
            runs: list[tuple[float, float]] = []
            packets: list[bytes] = []
            sound_s = 0.0
            for _ in range(rounds):
                packets, server_s = spoken(speaker, int(length * FRAME_RATE_HZ))
                samples, client_s = decoded(decoder, packets)
                sound_s = samples / 24_000
                runs.append((server_s / sound_s * 1e3, client_s / sound_s * 1e3))
            row = [min(run[side] for run in runs) for side in (0, 1)]
            table.append(row)
            rate = sum(map(len, packets)) / sound_s
            print(f"{sound_s:7.1f}  {rate:7.0f}  {row[0]:15.1f}  {row[1]:15.1f}", flush=True)
    finally:
        speaker.close()
        speaker.join()
    ratios = [table[-1][side] / table[0][side] for side in (0, 1)]
    print(f"longest to shortest: server {ratios[0]:.2f}, client {ratios[1]:.2f}")


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codec_stream", description=__doc__)
    parser.add_argument("--seconds", nargs="+", type=float, default=[10.0, 120.0])
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    from tests.adapters.engines.qwen3_tts import tiny

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = tiny.write(Path(place) / "custom", kind="custom_voice")
        measured(folder, asked.seconds, asked.rounds)


if __name__ == "__main__":
    main()
