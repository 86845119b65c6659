"""Words of dates, ordinals and units that a full stop leans on; the same lists for all languages."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CALENDAR = _words(
    """monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december montag dienstag mittwoch donnerstag freitag samstag sonntag sonnabend
    januar jänner februar märz mai juni juli oktober dezember jan feb mar apr jun jul aug sep sept oct okt nov dec
    dez mon tue tues wed thu thur thurs fri sat sun"""
)
"""Weekdays and months."""

AFTER_TIME = CALENDAR | _words("pacific eastern central mountain greenwich utc gmt")
"""What may follow a time of the day in the same sentence although it has a capital."""

ORDINAL_NOUNS = _words(
    """januar jänner februar märz april mai juni juli august september oktober november dezember jahrhundert
    jahrhunderts jahrhunderte jahrtausend jahrtausends auflage geburtstag platz mal klasse stock etage kapitel
    weltkrieg weltkriegs runde tag woche monat quartal semester jahr jahrestag liga bezirk band teil akt satz
    stufe generation advent spieltag bundesliga verordnung jan feb mär apr jun jul aug sept okt nov dez
    obergeschoss stockwerk jh grad halbzeit minute lebensjahr hochzeitstag todestag geburtstages schuljahr klasse
    staffel folge ausgabe version armee division symphonie sinfonie etappe hälfte position rang reihe zeile seite
    sitzung wahlperiode århundrede maj etage sal klasse plads januára februára marca apríla mája júna júla augusta
    septembra októbra novembra decembra ledna února března dubna května června července srpna září října listopadu
    prosince stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia
    wieku století storočia tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta
    syyskuuta lokakuuta marraskuuta joulukuuta"""
)
"""What an ordinal such as "3." often goes with."""

ORDINAL_LEADS = _words(
    """am der die das den dem des im vom zum zur bis seit ab beim jeden jede jedes jeder ein eine einen einem einer
    eines dieser diesem diesen unser sein ihr mein dein jeweils und den d. dem. ihren seinen meinen deinen unseren
    zu"""
)
"""Words before an ordinal."""

LABELS = _words(
    """vitamin plan option grade class type section appendix group team step part hepatitis letter figure version
    model exhibit schedule category tier platform gate track site zone block ward unit line level program typ
    klasse gruppe anhang variante stufe gleis tor punkt teil vitamine groupe annexe partie vitamina grupo anexo
    opción gruppo opzione opção группа витамин план вариант point choice answer is equals player person node
    column row route terminal malcolm generation gen schritt spalte zeile lösung antwort réponse respuesta
    risposta resposta case scenario product"""
)
"""Words before a single capital that is no initial ("vitamin D")."""

UNITS = _words(
    """hr hrs km cm mm dm nm kg mg g l ml cl dl hl m s ms h min sek sec std kb mb gb tb hz khz mhz ghz kw kwh mw w v
    mph kmh kph lb lbs ft yd yds oz pt qt gal px pts db bar pa hpa kpa cal kcal mm² m² m³ км см мм м кг г мг л мл
    ч мин сек руб коп грн хв год млн млрд тыс kr kč zł ft rub usd eur chf gbp"""
)
"""Units of measure and money: behind a number they may end a sentence like any word."""

PAIRS = frozenset(
    (
        *(("ad", "es"), ("per", "es"), ("p", "ex"), ("p", "ej"), ("par", "ex"), ("v", "gr"), ("j", "c"), ("ee", "uu")),
        *(("t", "ex"), ("bl", "a"), ("f", "eks"), ("z", "b"), ("d", "h"), ("i", "d"), ("т", "е"), ("т", "к")),
        *(("n", "chr"), ("v", "chr"), ("i", "e"), ("e", "g"), ("т", "н"), ("av", "j"), ("ap", "j"), ("fl", "oz")),
    )
)
"""Two tokens that are one abbreviation, which ends no sentence; without their full stops."""

ETC_PAIRS = frozenset((("т", "д"), ("т", "п"), ("т", "б")))
"""Two letters that mean "and so on": a capital behind them begins a sentence."""

ENDING_PAIRS = frozenset((("s", "o"), ("s", "u"), ("u", "a"), ("u", "v"), ("a", "s"), ("p", "m"), ("a", "m")))
"""Two letters behind which a sentence may end."""
