"""The process in which Pico runs: reads one JSON request per line, answers with a length and samples.

Pico is C code from 2009 that reads untrusted text and holds Python's lock while it works: in a process of its
own it can neither crash the server nor stop its event loop. It also leaves memory unset that it then reads; with
``MALLOC_MMAP_THRESHOLD_`` in the environment its memory comes zeroed from the kernel, and so the same text gives
the same samples. Imports nothing of ours, so that it starts fast.

Answer: 4 bytes big-endian signed; n >= 0 is followed by n bytes (16 kHz s16le), -1 means Pico refused the text.
"""

import json
import sys

from py_nanotts import NanoTTS


def main() -> None:
    """Answer until the input ends."""
    voice = NanoTTS()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            samples = voice.speak(request["text"], voice=request["voice"])
        except (RuntimeError, ValueError):
            sys.stdout.buffer.write((-1).to_bytes(4, "big", signed=True))
        else:
            sys.stdout.buffer.write(len(samples).to_bytes(4, "big", signed=True) + samples)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
