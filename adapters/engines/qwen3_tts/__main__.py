"""Speak one text, for proofs and bug reports (``python -m adapters.engines.qwen3_tts CKPT --text T``)."""

from __future__ import annotations

import argparse
import json
import queue
import sys
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import torch
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.checkpoint import Checkpoint, open_checkpoint
from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.config import TalkerConfig
from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.requests import Ask, Ended, Event, Failed, Limits, Samples
from adapters.engines.qwen3_tts.runtime import Runtime
from adapters.engines.qwen3_tts.speaker_encoder import SpeakerEncoder
from adapters.engines.qwen3_tts.speech_tokenizer import SpeechTokenizer, encode_voice
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.stages import CODEBOOKS, Frames, Prompt, Reference, Sampling
from adapters.engines.qwen3_tts.tokenizer import TextTokenizer
from adapters.engines.qwen3_tts.utterances import ISO
from sidecar.faults import BadRequest, ConfigError, Fault
from sidecar.ports import SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class Result:
    """``codes`` int64 ``(frames, 16)``, ``pcm`` float32 at 24 kHz; ``reason`` of the end: end, max_frames or cap."""

    codes: NDArray[np.int64]
    pcm: NDArray[np.float32]
    reason: str


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m adapters.engines.qwen3_tts", description=__doc__)
    add = parser.add_argument
    add("checkpoint", metavar="CKPT", help="checkpoint folder or hub id")
    add("--text", required=True)
    add("--language", help="a name such as English, an ISO code, or auto (default)")
    add("--speaker", help="of a CustomVoice checkpoint (default: its first)")
    add("--instruct", default="", help="how to speak; voice design and the large custom voices")
    add("--ref-audio", type=Path, help="recording of the voice to clone (Base)")
    add("--ref-text", help="its transcript: clone in context")
    add("--x-vector-only", action="store_true", help="clone from the speaker embedding alone")
    add("--whole-text", action="store_true", help="the reference's non_streaming_mode: all text before the first code")
    draws = parser.add_mutually_exclusive_group()
    draws.add_argument("--greedy", action="store_true", help="draw nothing: the likeliest code each time")
    draws.add_argument("--seed", type=int, default=0)
    add("--max-new", type=int, default=2_048, help="codes drawn at most, the end included: one frame fewer")
    add("--device", default="cpu")
    add("--dtype", default="float32", choices=["float32", "bfloat16", "int8"])
    add("--chunk-frames", type=int, default=25, help="frames decoded at a time")
    add("--codes", type=Path, help="write the codes, int64 (frames, 16), .npy")
    add("--wav", type=Path, help="write the audio, 16 bit")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Speak and print what came of it as one line of JSON; 0, or 1 with the reason on the error output."""
    parser = arguments()
    asked = parser.parse_args(argv)
    if asked.max_new < 2 or asked.chunk_frames < 1:
        parser.error("--max-new must be at least 2, --chunk-frames at least 1")
    if asked.ref_audio is not None and asked.ref_text is None and not asked.x_vector_only:
        parser.error("--ref-audio needs --ref-text, or --x-vector-only")
    try:
        result = speak(asked)
    except ConfigError as error:
        print("; ".join(error.problems), file=sys.stderr)
        return 1
    except Fault as fault:
        print(fault.message, file=sys.stderr)
        return 1
    if asked.codes is not None:
        np.save(asked.codes, result.codes)
    if asked.wav is not None:
        _write_wav(asked.wav, result.pcm)
    facts = {"frames": len(result.codes), "samples": len(result.pcm), "ended": result.reason}
    print(json.dumps(facts))
    return 0


def speak(asked: argparse.Namespace) -> Result:
    """Load the checkpoint and say the text. Raises ``ConfigError`` and ``Fault``."""
    checkpoint = open_checkpoint(asked.checkpoint)
    tokenizer = TextTokenizer.load(checkpoint.folder, checkpoint.talker)
    prompt = prompt_of(asked, checkpoint, tokenizer)

    def load() -> Stages:
        positions = asked.max_new + 64 + len(prompt.text_ids) + len(prompt.instruct_ids)
        if (reference := prompt.reference) is not None and reference.codes is not None:
            positions += len(reference.codes) + len(reference.text_ids)
        talker = Stage0.load(
            checkpoint, tokenizer.role_ids, device=asked.device, precision=asked.dtype, positions=positions
        )
        dtype = torch.bfloat16 if asked.dtype == "bfloat16" else torch.float32
        decoder = Code2Wav(checkpoint.codec.decoder, checkpoint.codec_weights, device=asked.device, dtype=dtype)
        return Stages(talker, decoder)

    # What is asked for is what the reference would do: no guard, no cap of ours, no pauses.
    frames, chunk = asked.max_new - 1, asked.chunk_frames
    limits = Limits(
        max_lead_frames=max(frames, chunk) + 1,
        chunk_ramp=(chunk,),
        min_cap_frames=frames + 1,
        frames_per_token=1,
        guard=None,
    )
    return run(Runtime(load, limits), Ask(prompt, max_frames=frames, output="both"))


def run(runtime: Runtime, ask: Ask) -> Result:
    """One request, its output both, through a runtime that is started and closed for it. Raises ``Fault``."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    codes: list[Frames] = [np.zeros((0, CODEBOOKS), np.int16)]
    pcm: list[NDArray[np.float32]] = [np.zeros(0, np.float32)]
    try:
        runtime.start().result()
        runtime.submit(ask, events.put)
        while True:
            match events.get():
                case Samples(samples, _, frames):
                    pcm.append(samples)
                    if frames is not None:
                        codes.append(frames)
                case Ended(reason):
                    return Result(np.concatenate(codes).astype(np.int64), np.concatenate(pcm), reason)
                case Failed(fault):
                    raise fault
                case _:
                    pass
    finally:
        runtime.close()
        runtime.join()


def prompt_of(asked: argparse.Namespace, checkpoint: Checkpoint, tokenizer: TextTokenizer) -> Prompt:
    """The prompt that the command line describes. What does not go together is for stage 0 to say."""
    config = checkpoint.talker
    speaker = asked.speaker
    if speaker is None and config.kind == "custom_voice":
        speaker = next(iter(config.speakers))
    reference = None
    if asked.ref_audio is not None:
        reference = reference_of(asked, checkpoint, tokenizer)
    return Prompt(
        text_ids=tokenizer.body_ids(asked.text),
        layout="whole" if asked.whole_text else "streaming",
        language=language_of(asked.language, config),
        speaker=speaker,
        instruct_ids=tokenizer.instruct_ids(asked.instruct),
        reference=reference,
        sampling=Sampling(seed=asked.seed, greedy=asked.greedy),
    )


def language_of(asked: str | None, config: TalkerConfig) -> str | None:
    """A name, or an ISO code of one of the checkpoint's languages, as a name; None for auto."""
    if asked is None or asked.lower() == "auto":
        return None
    by_code = {ISO[name]: name for name in config.offered_languages if name in ISO}
    return by_code.get(asked.lower(), asked.lower())


def reference_of(asked: argparse.Namespace, checkpoint: Checkpoint, tokenizer: TextTokenizer) -> Reference:
    """The voice of a recording. Raises ``BadRequest`` where it cannot be read or used."""
    if checkpoint.speaker_encoder is None:
        raise BadRequest(f"this checkpoint ({checkpoint.talker.kind}) cannot clone voices: it has no speaker encoder")
    speaker = SpeakerEncoder(checkpoint.speaker_encoder, checkpoint.weights, device=asked.device)
    codec = None
    if not asked.x_vector_only:
        codec = SpeechTokenizer(checkpoint.codec.encoder, checkpoint.codec_weights, device=asked.device)
    voice = encode_voice(*read_audio(asked.ref_audio), speaker, codec)
    text_ids = tokenizer.reference_ids(asked.ref_text) if codec is not None else ()
    return Reference(voice.embedding, voice.codes, text_ids)


def read_audio(path: Path) -> tuple[NDArray[np.float32], int]:
    """An audio file of any usual format as float32 ``(samples, channels)`` and its rate. Raises ``BadRequest``."""
    try:
        with av.open(str(path)) as container:
            stream = container.streams.audio[0]
            rate = int(stream.rate)
            to_float = av.AudioResampler(format="fltp", rate=rate)
            planes = [out.to_ndarray() for frame in container.decode(stream) for out in to_float.resample(frame)]
            planes += [out.to_ndarray() for out in to_float.resample(None)]
    except (av.FFmpegError, OSError, IndexError) as error:
        raise BadRequest(f"{path.name} cannot be read as audio ({type(error).__name__})") from error
    if not planes:
        raise BadRequest(f"{path.name} holds no audio")
    return np.concatenate(planes, axis=1).T.astype(np.float32), rate


def _write_wav(path: Path, pcm: NDArray[np.float32]) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(np.round(np.clip(pcm, -1, 1) * 32_767).astype("<i2").tobytes())


if __name__ == "__main__":
    sys.exit(main())
