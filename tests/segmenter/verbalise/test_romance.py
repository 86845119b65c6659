from __future__ import annotations

import pytest

from segmenter.verbalise import verbalise


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("67 413 000 habitants", "soixante-sept millions quatre cent treize mille habitants"),
        ("3,14 et 3,05", "trois virgule quatorze et trois virgule zéro cinq"),
        ("71, 80, 91, 200", "soixante-et-onze, quatre-vingts, quatre-vingt-onze, deux cents"),
        ("21 pages, 1 heure, 1 an, 21 ans", "vingt-et-une pages, une heure, un an, vingt-et-un ans"),
        ("le 1er mai 2024, 1 mai", "le premier mai deux mille vingt-quatre, premier mai"),
        ("la 2e fois, 1re, 91e, 2ème", "la deuxième fois, première, quatre-vingt-onzième, deuxième"),
        ("15/03/2024", "quinze mars deux mille vingt-quatre"),
        ("à 15h30, de 9h à 17h, 10:30", "à quinze heures trente, de neuf heures à dix-sept heures, dix heures trente"),
        ("5,50 €, 0,99 €", "cinq euros cinquante, quatre-vingt-dix-neuf centimes"),
        ("1 234 €", "mille deux cent trente-quatre euros"),
        ("12,50 euros par personne", "douze euros cinquante par personne"),
        ("10 M€, 1 000 000 €", "dix millions d'euros, un million d'euros"),
        ("19,99 €/mois", "dix-neuf euros quatre-vingt-dix-neuf par mois"),
        ("80 km/h, -5 °C, 5 Go", "quatre-vingts kilomètres par heure, moins cinq degrés Celsius, cinq gigaoctets"),
        ("50 %, 3-5 jours, n° 5", "cinquante pour cent, trois à cinq jours, numéro cinq"),
        ("3/4, 1/3, 2 1/2", "trois quarts, un tiers, deux et demi"),
        ("01 23 45 67 89", "zéro un, vingt-trois, quarante-cinq, soixante-sept, quatre-vingt-neuf"),
        ("Louis XIV au XIXe siècle", "Louis quatorze au dix-neuvième siècle"),
    ],
)  # fmt: skip
def test_french(text: str, said: str) -> None:
    assert verbalise(text, "fr") == said


def test_swiss_and_belgian_tens() -> None:
    assert verbalise("75, 85 et 95", "fr-CH") == "septante-cinq, huitante-cinq et nonante-cinq"
    assert verbalise("75, 85 et 95", "fr-BE") == "septante-cinq, quatre-vingt cinq et nonante-cinq"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("47.420.000 habitantes", "cuarenta y siete millones cuatrocientos veinte mil habitantes"),
        ("3,14 y 3.5", "tres coma catorce y tres punto cinco"),
        ("1 hora, 21 libros, 200 personas, 21", "una hora, veintiún libros, doscientas personas, veintiuno"),
        ("31 días, 1 problema, 1 vez", "treinta y un días, un problema, una vez"),
        ("el 5 de mayo de 2024, 1 de mayo", "el cinco de mayo de dos mil veinticuatro, primero de mayo"),
        ("15/03/2024", "quince de marzo de dos mil veinticuatro"),
        ("a las 7:30, 1:15, de 9:00 a 17:00", "a las siete y media, una y cuarto, de nueve a diecisiete"),
        ("la 2.ª vez, el 3.er piso, 1º", "la segunda vez, el tercer piso, primero"),
        ("5,50 €, 0,99 €, 1 €", "cinco euros con cincuenta céntimos, noventa y nueve céntimos, un euro"),
        ("1.000.000 €, 5 millones €", "un millón de euros, cinco millones de euros"),
        ("1,5 kg, 20 °C, 1 tonelada", "uno coma cinco kilogramos, veinte grados Celsius, una tonelada"),
        ("10 %, un 1%, 3-5 días", "diez por ciento, un uno por ciento, tres a cinco días"),
        ("3/4, ½ litro, 1/2 taza", "tres cuartos, medio litro, media taza"),
        ("llame al 612 345 678", "llame al seis uno dos, tres cuatro cinco, seis siete ocho"),
        ("siglo XXI, Alfonso XIII, Felipe II", "siglo veintiuno, Alfonso trece, Felipe segundo"),
        ("n.º 5", "número cinco"),
    ],
)  # fmt: skip
def test_spanish(text: str, said: str) -> None:
    assert verbalise(text, "es") == said


def test_mexican_marks_and_dollar() -> None:
    assert verbalise("$1,234.50 y 3.5", "es-MX") == (
        "mil doscientos treinta y cuatro pesos con cincuenta centavos y tres punto cinco"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("59.030.000 abitanti", "cinquantanove milioni trentamila abitanti"),
        ("3,14", "tre virgola quattordici"),
        ("1 ora, 1 libro, 1 studente, 21", "una ora, un libro, uno studente, ventuno"),
        ("il 1 maggio, 1° maggio, il 2° piano, 20°", "il primo maggio, primo maggio, il secondo piano, venti gradi"),
        ("la 2ª volta", "la seconda volta"),
        ("alle 7:30, alle 15.30, 1:00", "alle sette e trenta, alle quindici e trenta, una"),
        ("5,50 €, 1 €, 1.000.000 €", "cinque euro e cinquanta centesimi, un euro, un milione di euro"),
        ("1 h, 30 °C, 5 km", "un'ora, trenta gradi Celsius, cinque chilometri"),
        ("3-5 giorni, da 3-5", "da tre a cinque giorni, da tre a cinque"),
        ("50%, 5 mln di euro", "cinquanta per cento, cinque milioni di euro"),
        ("3/4, ½ litro", "tre quarti, mezzo litro"),
        ("il XX secolo", "il ventesimo secolo"),
        ("15/03/2024", "quindici marzo duemilaventiquattro"),
    ],
)
def test_italian(text: str, said: str) -> None:
    assert verbalise(text, "it") == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3,14, em 352 estava", "três vírgula catorze, em trezentos e cinquenta e dois estava"),
        ("1 hora, 2 pessoas, 200 páginas, 2", "uma hora, duas pessoas, duzentas páginas, dois"),
        ("1 de maio de 2024", "primeiro de maio de dois mil e vinte e quatro"),
        ("às 7h30, das 9h às 17h, 10:30", "às sete e trinta, das nove horas às dezessete horas, dez e trinta"),
        ("R$ 5,50, R$ 1, R$ 0,99", "cinco reais e cinquenta centavos, um real, noventa e nove centavos"),
        ("R$ 2,5 milhões, 5 mi de reais", "dois vírgula cinco milhões de reais, cinco milhões de reais"),
        ("10%, 3-5 dias, 2 km", "dez por cento, três a cinco dias, dois quilômetros"),
        ("a 2ª vez, o 3º andar", "a segunda vez, o terceiro andar"),
        ("3/4, ½ hora", "três quartos, meia hora"),
        ("(11) 91234-5678", "um um, nove um dois três quatro, cinco seis sete oito"),
        ("século XIX", "século dezenove"),
    ],
)
def test_portuguese(text: str, said: str) -> None:
    assert verbalise(text, "pt") == said


def test_portuguese_of_portugal() -> None:
    assert verbalise("16, 17 e 5 km", "pt-PT") == "dezasseis, dezassete e cinco quilómetros"
    assert verbalise("16 e 17", "pt-BR") == "dezesseis e dezessete"
