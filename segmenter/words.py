"""Word lists that settle what a full stop means. All lower case unless said otherwise."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TITLES = _words(
    # en
    "mr mrs ms mx dr drs prof capt cmdr sgt cpl pvt msgr messrs e.g i.e viz vs cf approx "
    # de
    "frl hrn dipl med phil jur rer habil bzw ca evtl ggf inkl exkl zzgl bspw vgl sog betr einschl entspr "
    "ehem urspr "
    "allg hrsg verf kath evang geb gest mio mrd tsd aufl "
    # fr
    "mgr chap éd boul "
    # es, pt, it
    "sr sra srta sres sras ud uds vd vds gral cnel lic arq excmo ilmo avda dpto izq dcha núm aprox srs "
    "exmo exma profa "
    "sig sigg dott avv dir amm geom egr gent spett "
    # ru
    "ул вул пгт чл кв стр корп им проф акад см тыс млн млрд обл тел рис табл гл просп "
    # nl, da
    "dhr mevr mw bijv"
)
"""Abbreviations that never end a sentence before a capital."""

CAPITAL_TITLES = _words(
    "Gen Sen Rep Gov Col Lt Maj Adm Hon Rev Pres Supt Insp Mt St Hr Fr Mag Ing MM Me Pr Bd D Dra Sto Sta "
    "Fdo EE Eng Av Arch On Rag Ds Kl Fru Nr Fig Figs Eq Eqs Abb Tab Jan Feb Mar Apr Jun Jul Aug Sep Sept "
    "Oct Okt Nov Dec Dez"
)
"""As written: they end a sentence only before a word that usually begins one."""

BEFORE_NUMBER = _words(
    "no nos nr n nº n° num párr párrf cra стор див fig figs eq eqs sec secs sect ch chap vol vols p pp "
    "par para paras art arts tel ext s kap abb "
    "tab bd ziff rn str hauptstr rm bldg pag pagg pág págs cap núm ed д кв г стр рис табл гл см п ст т "
    "mind abs mwst "
    "jan feb apr jun jul aug sep sept oct nov dec tue tues wed thu thur thurs fri okt dez janv févr avr "
    "juil déc giu "
    "lug ott fev al ft lb lbs inkl ca approx circa"
)
"""Abbreviations that do not end a sentence before a number."""

CAPITAL_BEFORE_NUMBER = _words(
    "Mar Mai Mär Jän Sat Sun Mon Ene Abr Ago Dic Gen Mag Set Out Mo Di Mi Do Fr Sa So App Est Ver Op Pt"
)
"""As written: they do not end a sentence before a number."""

BEFORE_NAME = _words(
    "av bd inc ltd co corp llc jr bros ave blvd rd st ln hwy sq apt dept univ assn m.d b.a m.a b.sc m.sc "
    "ll.b ll.m d.d.s b.c "
    "a.d b.c.e c.e u.s u.k u.n e.u d.c u.s.a u.a.e cie soc s.a s.l s.p.a r.i.p г гг в вв др руб коп ltda cia"
)
"""Abbreviations that end a sentence only before a word that usually begins one."""

DAY_TIMES = _words("a.m p.m am pm")
"""Parts of the day: they end a sentence before a capital, but not before a weekday, month or time zone."""

CALENDAR = _words(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july "
    "august "
    "september october november december montag dienstag mittwoch donnerstag freitag samstag sonntag "
    "sonnabend januar "
    "jänner februar märz mai juni juli oktober dezember jan feb mar apr jun jul aug sep sept oct okt nov "
    "dec dez mon "
    "tue wed thu fri sat sun"
)

AFTER_TIME = CALENDAR | _words("mr mrs ms dr prof")
"""What may follow a time of the day in the same sentence although it has a capital."""

ORDINAL_NOUNS = _words(
    "januar jänner februar märz april mai juni juli august september oktober november dezember "
    "jahrhundert jahrhunderts "
    "jahrhunderte jahrtausend auflage geburtstag platz mal klasse stock etage kapitel weltkrieg "
    "weltkriegs runde tag "
    "woche monat quartal semester jahr jahrestag liga bezirk band teil akt satz stufe generation advent "
    "spieltag "
    "bundesliga verordnung januar. jan feb mär apr jun jul aug sept okt nov dez obergeschoss stockwerk "
    "jh århundrede maj juni juli oktober etage sal klasse"
)
"""What a German (or Danish) ordinal such as "3." often goes with."""

ORDINAL_LEADS = _words(
    "am der die das den dem des im vom zum zur bis seit ab beim jeden jede jedes jeder ein eine einen "
    "einem einer "
    "eines dieser diesem diesen unser sein ihr mein dein jeweils und den d."
)
"""Words before a German ordinal."""

LABELS = _words(
    "vitamin plan option grade class type section appendix group team step part hepatitis letter figure "
    "version model "
    "exhibit schedule category tier platform gate track site zone block ward unit line level program "
    "typ klasse gruppe anhang variante stufe gleis tor punkt "
    "vitamine groupe annexe partie vitamina grupo anexo opción gruppo opzione"
)
"""Words before a single capital that is no initial ("vitamin D")."""

STARTERS = _words(
    # en
    "The A An This That These Those He She It We They You I There Here What When Where Why How Who Which "
    "If But And So "
    "Or Then Now In On At For From With After Before As Our My Your His Her Its Their Also However "
    "Meanwhile Yes No "
    "Please Let Don't Do Does Did Is Are Was Were Can Could Will Would Should Some Many Most All Both "
    "Each Every "
    "One Two Another Not Nobody Nothing Someone Still Yet Even Just Only Since While Although Because "
    "Finally First "
    "Next Later Today Tomorrow Yesterday It's That's There's I'm I'll I've He's She's We're You're "
    "They're Let's "
    "What's Here's Isn't Didn't Can't Won't Thanks Sorry Ok Okay Well Sure Hello Hi Check Use Try See "
    "Take Keep "
    "Drei Have Has Had To By Of Such Instead Otherwise Maybe Perhaps Once Until Unless Whether "
    # de
    "Der Die Das Ein Eine Er Sie Es Wir Ihr Ich Du Dann Danach Dort Hier Heute Morgen Gestern Und Aber "
    "Oder Doch Denn "
    "Weil Wenn Als Nach Vor Bei Mit Für Im In Am An Auf Aus Bis Seit Von Zu Zum Zur Wie Was Wer Wo Warum "
    "Kann Ist Sind "
    "War Noch Nun Jetzt Auch Dies Diese Dieser Dieses Man Kein Keine Mein Unser Bitte Später Damit Dabei "
    "Deshalb Daher "
    "Dazu Darum Nur Alle Viele Manche Jeder Jede Ja Nein Vielleicht "
    # fr
    "Le La Les L Un Une Il Elle Ils Elles On Nous Vous Je J Tu Ce Cette Ces Cela C C'est Ça Mais Et Ou "
    "Donc Puis Ensuite "
    "Quand Si Dans Pour Avec Sans Après Avant Comme Son Sa Ses Mon Ma Mes Oui Non "
    # es
    "El Los Las Una Él Ella Ellos Yo Tú Nosotros Es Son Está Pero Y O Cuando Donde Como Luego Después "
    "Entonces Esto Esta "
    "Este En Por Para Con Sin Lo Se Su Sus Mi Sí También "
    # it
    "Gli Uno Lui Lei Noi Voi Loro È Sono E Se Poi Dopo Questo Questa Per Non Ci Anche Ma Quando Il Lo "
    # pt
    "Os As Um Uma Ele Ela Eles Elas Nós Eu São Mas Depois Então Isto Isso Em No Na Com Sem Não Sim Também "
    # ru
    "Он Она Оно Они Мы Вы Я Ты Это Этот Эта Но И А Или Если Когда Потом Затем Там Здесь В На По Для С Из "
    "К Так Как Что "
    "Кто Где Все Всё Мне Его Её Их Да Нет"
)
"""Words, as written, that usually begin a sentence."""
