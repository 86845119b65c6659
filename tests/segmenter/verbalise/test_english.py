from __future__ import annotations

import pytest

from segmenter.verbalise import verbalise


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # whole numbers, decimals, signs
        ("Call 2 5 9 at 10:30.", "Call two five nine at ten thirty."),
        ("8,336,817 people", "eight million three hundred thirty-six thousand eight hundred seventeen people"),
        ("Pi is 3.14.", "Pi is three point one four."),
        ("0.05 is small", "zero point zero five is small"),
        ("agent 007", "agent zero zero seven"),
        ("-5 °C, −3.5 °C, ±2", "minus five degrees Celsius, minus three point five degrees Celsius, plus or minus two"),
        ("~50 people, <5 ms, ≥ 3", "about fifty people, less than five milliseconds, at least three"),
        ("3 + 4 = 7, 5 - 3 = 2", "three plus four equals seven, five minus three equals two"),
        ("3 × 4 = 12", "three times four equals twelve"),
        ("x² + 5² and 10^6", "x squared plus five squared and ten to the power of six"),
        ("1.5e-3", "one point five times ten to the power of minus three"),
        # years, decades, dates
        ("In 1999, it rained.", "In nineteen ninety-nine, it rained."),
        ("from 2010 to 2020", "from twenty ten to twenty twenty"),
        ("2005 was dry.", "two thousand five was dry."),
        ("about 1999 people", "about one thousand nine hundred ninety-nine people"),
        ("the 1990s and her 20s", "the nineteen nineties and her twenties"),
        ("wait 20s", "wait twenty seconds"),
        ("on May 5, 2024", "on May fifth, twenty twenty-four"),
        ("born on 12 June 1987", "born on the twelfth of June nineteen eighty-seven"),
        ("You may 5 times", "You may five times"),
        ("It happened on 12/03/2024.", "It happened on December third, twenty twenty-four."),
        ("Or 2024-03-12, if you prefer.", "Or March twelfth, twenty twenty-four, if you prefer."),
        ("25/12/2023", "December twenty-fifth, twenty twenty-three"),
        # times
        ("at 7.45 a.m.", "at seven point four five a.m."),
        ("at 7:45 a.m., 5 p.m. or 5pm", "at seven forty-five a.m., five p.m. or five pm"),
        ("10:00, 10:05, 0:00, 14:30", "ten o'clock, ten oh five, midnight, fourteen thirty"),
        ("7:30pm–9pm", "seven thirty pm to nine pm"),
        # money
        ("It costs $5.50.", "It costs five dollars and fifty cents."),
        ("$1, $0.99, £1.01, €20", "one dollar, ninety-nine cents, one pound and one penny, twenty euros"),
        ("$1,234 or 20 €", "one thousand two hundred thirty-four dollars or twenty euros"),
        ("$3.5M, $3 million", "three point five million dollars, three million dollars"),
        ("$1.5bn", "one point five billion dollars"),
        ("$3-5, $10/month, CHF 20", "three to five dollars, ten dollars per month, twenty francs"),
        ("5,50 € or €5,50", "five euros and fifty cents or five euros and fifty cents"),
        ("$5.5", "five point five dollars"),
        # units, per cent, ranges
        ("20 km/h for 1 mile or 2.5 kg", "twenty kilometers per hour for 1 mile or 2.5 kg"),
        ("50%, 10–15 %", "fifty percent, ten to fifteen percent"),
        ("a 5-km run, 5-minute", "a five-kilometer run, five-minute"),
        ("30 min. at 180 °F", "thirty minutes at one hundred eighty degrees Fahrenheit"),
        ("8 GB, 3.5 GHz, 25 m²", "eight gigabytes, three point five gigahertz, twenty-five square meters"),
        ("pages 10-15, a 1–2 hour walk", "pages ten to fifteen, a one to two hour walk"),
        ("5%-10%, Catch-22", "five percent to ten percent, Catch twenty-two"),
        ("5 km–10 km, 5 km – 10 km", "five kilometers to ten kilometers, five kilometers to ten kilometers"),
        ("the 2023-24 season", "the twenty twenty-three to twenty-four season"),
        ("won 5-3, 16:9", "won five to three, sixteen to nine"),
        ("1920x1080, 3x faster", "one thousand nine hundred twenty by one thousand eighty, three times faster"),
        ("10k users", "ten thousand users"),
        # fractions, ordinals, names
        ("1/2 cup, 3/4, 2 1/2 cups", "one half cup, three quarters, two and a half cups"),
        ("¾, 1½", "three quarters, one and a half"),
        ("8/10, 4.5/5, 50/50, 24/7", "eight out of ten, four point five out of five, fifty fifty, twenty-four seven"),
        ("the 21st, 2nd, 103rd", "the twenty-first, second, one hundred third"),
        ("No. 5, #1, § 3", "number five, number one, section three"),
        ("GPT-4o, COVID-19, mp3, B2B, H2O", "GPT four o, COVID nineteen, mp three, B two B, H two O"),
        ("Python 3.11, v3.11.2", "Python three point one one, v three point eleven point two"),
        ("v1.2, GPT-4.5, 1:2.5", "v one point two, GPT four point five, one to two point five"),
        ("the year\n1984. In the 80's", "the year\nnineteen eighty-four. In the eighties"),
        ("192.168.1.1", "one hundred ninety-two point one hundred sixty-eight point one point one"),
        ("(555) 123-4567", "five five five, one two three, four five six seven"),
        ("+49 30 1234567", "plus four nine, three zero, one two three four five six seven"),
        ("Call 911 now", "Call nine one one now"),
        ("12345678901", "one two three four five six seven eight nine zero one"),
        ("Louis XIV, World War II, Chapter IV", "Louis the Fourteenth, World War two, Chapter four"),
        ("vitamin C, plan V, I am, an IV drip", "vitamin C, plan V, I am, an IV drip"),
    ],
)  # fmt: skip
def test_english(text: str, said: str) -> None:
    assert verbalise(text, "en") == said.replace("1 mile or 2.5 kg", "one mile or two point five kilograms")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("12/03/2024", "the twelfth of March twenty twenty-four"),
        ("101 and 1,234", "one hundred and one and one thousand two hundred and thirty-four"),
        ("the 103rd", "the one hundred and third"),
    ],
)
def test_british(text: str, said: str) -> None:
    assert verbalise(text, "en-GB") == said
    assert verbalise(text, "EN_gb") == said
