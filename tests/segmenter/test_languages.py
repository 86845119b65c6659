import pytest

from segmenter import SegmentOptions, SegmentStream
from segmenter.languages import LanguageGuess, language
from tests.segmenter.helpers import run

_TEXTS = {
    "en": "It is the first of many things that you have to do with this.",
    "de": "Das ist nicht der Weg, und wir sind auch noch auf dem Weg.",
    "fr": "Le chat est dans la maison et il ne sort pas avec nous.",
    "es": "El gato está en la casa y no sale con los otros.",
    "it": "Il gatto è nella casa e non esce con gli altri, ma anche questo.",
    "pt": "O gato está na casa e não sai com os outros, mas você sim.",
    "nl": "De kat is niet in het huis, maar er is ook een hond.",
    "pl": "To jest kot i nie jest w domu, ale to po co się z nim bawić.",
    "ru": "Это не так, как было у него в доме.",
    "uk": "Це не так, як було у його домі, і ще її.",
    "el": "Αυτό είναι το σπίτι.",
    "zh": "今天天气很好。",
    "ja": "今日はいい天気です。",
    "ko": "오늘 날씨가 좋네요.",
    "hi": "आज मौसम अच्छा है।",
    "ar": "الطقس جميل اليوم.",
}


@pytest.mark.parametrize("code", _TEXTS)
def test_the_language_is_told_from_the_text(code: str) -> None:
    stream = SegmentStream()
    assert stream.language == "auto"
    stream.feed(_TEXTS[code])
    stream.flush()
    assert stream.language == code


def test_too_little_tells_nothing() -> None:
    guess = LanguageGuess()
    guess.note("Berlin 1990 OK")
    assert guess.code() == "auto"
    assert guess.code("x") == "auto"


def test_the_guess_follows_the_text() -> None:
    guess = LanguageGuess()
    for _ in range(4):
        guess.note(_TEXTS["en"])
    for _ in range(40):
        guess.note(_TEXTS["de"])
    assert guess.code() == "de"


def test_regions_and_other_spellings_of_a_code() -> None:
    assert language("pt-BR") == language("PT_br") == language("pt")
    assert language("nb") == language("no")
    assert language("xx") == language("auto")


def test_a_known_language_settles_what_the_mixture_cannot() -> None:
    text = "Spoločnosť vznikla 7. Apríla 2020, napr. XYZ. Potom nie."
    assert [s.spoken for s in run([text], SegmentOptions(language="sk", first_by_clause=False))] == [
        "Spoločnosť vznikla 7. Apríla 2020, napr. XYZ.",
        "Potom nie.",
    ]
    text = "The answer is 3. Mai is a name."
    assert len(run([text], SegmentOptions(language="en", first_by_clause=False))) == 2
    assert len(run(["Das ist am 3. Mai so."], SegmentOptions(language="de", first_by_clause=False))) == 1


def test_the_language_can_be_corrected() -> None:
    stream = SegmentStream(SegmentOptions(first_by_clause=False))
    stream.language = "pl"
    assert stream.language == "pl"
    assert [s.spoken for s in stream.feed("Jest tam np. Anna. Ona ma psa.") + stream.flush()] == [
        "Jest tam np. Anna.",
        "Ona ma psa.",
    ]
    stream.language = "auto"
    assert stream.language == "auto"
