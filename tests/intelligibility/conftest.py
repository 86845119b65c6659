from __future__ import annotations

import pytest

from tests.intelligibility import asr


@pytest.fixture(scope="session")
def recogniser() -> asr.Recogniser:
    pytest.importorskip("faster_whisper", reason="faster-whisper is not installed (extra: test)")
    try:
        return asr.Recogniser(asr.model_folder())
    except asr.ModelMissing as missing:
        pytest.skip(str(missing))
