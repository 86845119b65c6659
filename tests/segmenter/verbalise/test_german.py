from __future__ import annotations

import pytest

from segmenter.verbalise import verbalise


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1.500 und 3,14", "eintausendfünfhundert und drei Komma eins vier"),
        ("Python 3.11", "Python drei Punkt eins eins"),
        ("1.234.567,89", "eine Million zweihundertvierunddreißigtausendfünfhundertsiebenundsechzig Komma acht neun"),
        ("1,234.56", "eintausendzweihundertvierunddreißig Punkt fünf sechs"),
        ("1 Stunde, 1 Buch, 1 Zeitung, 1 Junge", "eine Stunde, ein Buch, eine Zeitung, ein Junge"),
        ("mit 1 Stunde, für 1 Monat, seit 1 Jahr", "mit einer Stunde, für einen Monat, seit einem Jahr"),
        ("Nummer 1.", "Nummer eins."),
        # dates and ordinals
        ("Am 3. Mai 2024 um 10:30 Uhr.", "Am dritten Mai zweitausendvierundzwanzig um zehn Uhr dreißig."),
        ("Der 3. Mai, 3. Mai, den 3. Mai", "Der dritte Mai, dritter Mai, den dritten Mai"),
        ("Im 19. Jahrhundert, die 2. Auflage", "Im neunzehnten Jahrhundert, die zweite Auflage"),
        ("der 1. Tag, in der 3. Woche, 1. Platz", "der erste Tag, in der dritten Woche, erster Platz"),
        ("am 1. und 2. Mai, vom 12. bis 15. Mai", "am ersten und zweiten Mai, vom zwölften bis fünfzehnten Mai"),
        ("Es waren 3. Das ist viel.", "Es waren drei. Das ist viel."),
        ("3. Das ist der Punkt.", "drei. Das ist der Punkt."),
        ("am 10.5. und am 12.03.2024", "am zehnten Mai und am zwölften März zweitausendvierundzwanzig"),
        ("1999 war das, im Jahr 2024", "neunzehnhundertneunundneunzig war das, im Jahr zweitausendvierundzwanzig"),
        ("1999 Menschen", "eintausendneunhundertneunundneunzig Menschen"),
        ("die 80er Jahre, die 1980er", "die achtziger Jahre, die neunzehnhundertachtziger"),
        ("von 1990 bis 2000", "von neunzehnhundertneunzig bis zweitausend"),
        # times
        ("um 8.30 Uhr, 1:00 Uhr, von 9-17 Uhr", "um acht Uhr dreißig, ein Uhr, von neun bis siebzehn Uhr"),
        ("10:30", "zehn Uhr dreißig"),
        # money and units
        ("5,50 €, 0,99 €, 1 €, 1.000 €", "fünf Euro fünfzig, neunundneunzig Cent, ein Euro, eintausend Euro"),
        ("5 Mio. €, 1 Mio. Euro, 2,5 Mrd.", "fünf Millionen Euro, eine Million Euro, zwei Komma fünf Milliarden."),
        ("19,99 €/Monat", "neunzehn Euro neunundneunzig pro Monat"),
        ("20 km/h, -5 °C, 1,5 kg", "zwanzig Kilometer pro Stunde, minus fünf Grad Celsius, eins Komma fünf Kilogramm"),
        ("in 5 km, 5 Std. später", "in fünf Kilometern, fünf Stunden später"),
        ("Das macht 3,50 Euro. Am 1. 5. 2024", "Das macht drei Euro fünfzig. Am ersten Mai zweitausendvierundzwanzig"),
        ("50 %, 3–4 Tage, 3:2", "fünfzig Prozent, drei bis vier Tage, drei zu zwei"),
        # fractions and words
        ("3/4, 1/3, 2 1/2, 1½", "drei Viertel, ein Drittel, zweieinhalb, eineinhalb"),
        ("½ Liter, ½ Stunde, ½ Jahr", "ein halber Liter, eine halbe Stunde, ein halbes Jahr"),
        ("18-jährige, 5-mal, 100-prozentig", "achtzehnjährige, fünfmal, einhundertprozentig"),
        ("Nr. 5, § 3", "Nummer fünf, Paragraf drei"),
        ("0171 1234567", "null eins sieben eins, eins zwei drei vier fünf sechs sieben"),
        ("Ludwig XIV. war König, Elisabeth II.", "Ludwig der Vierzehnte war König, Elisabeth die Zweite."),
        ("3 x 4 = 12", "drei mal vier gleich zwölf"),
    ],
)  # fmt: skip
def test_german(text: str, said: str) -> None:
    assert verbalise(text, "de") == said
