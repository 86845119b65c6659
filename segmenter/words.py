"""Word lists that settle what a full stop means, per language. Lower case unless said otherwise.

``never``: ends no sentence before a capital ("Dr. Lund"). ``titles``: as written, ends one only before a word that
usually begins one ("St."). ``names``: the same in lower case ("inc."). ``numbers``: ends none before a number
("no. 5"); ``numbers_as_written``: the same, but only spelt so. ``starters``: words, as written, that usually begin a
sentence. ``function``: frequent small words that tell the language.
"""

from __future__ import annotations

from typing import Final

WORDS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "never": """mr mrs ms mx dr drs prof profs capt cmdr sgt cpl pvt msgr messrs e.g i.e eg viz vs cf approx esp
            resp incl excl supt insp ens mons""",
        "titles": """Gen Sen Rep Gov Col Lt Maj Adm Hon Rev Pres Mt St Fig Figs Eq Eqs Feb Jan Mar Apr Jun Jul Aug
            Sep Sept Oct Nov Dec Fr Br Atty Det Amb Sec Treas Ald Ven""",
        "names": """inc ltd co corp llc jr bros ave blvd rd st ln hwy sq apt dept univ assn m.d b.a m.a b.sc m.sc
            ll.b ll.m d.d.s b.c a.d b.c.e c.e u.s u.k u.n e.u d.c u.s.a u.a.e bldg mfg intl natl dist rte pkwy ft
            al esq""",
        "numbers": """no n° nº № nos nr subsec subpar reg regs amend stat fig figs eq eqs sec secs sect ch chap
            chaps vol vols p pp par para paras art arts tel ext ver v cl app est ca circa approx ft lb lbs hr hrs
            max min mins avg a.d aux ex rm apt ste ln tbl ref refs jan feb apr jun jul aug sep sept oct nov dec tue
            tues wed thu thur thurs fri incl plus fl""",
        "numbers_as_written": "Mar Sat Sun Mon App Est Op Pt Pts Pl Rev Hwy Rte Bk Bl",
        "starters": """The A An This That These Those He She It We They You I There Here What When Where Why How Who
            Which If But And So Or Then Now In On At For From With After Before As Our My Your His Her Its Their
            Also However Meanwhile Yes No Please Let Don't Do Does Did Is Are Was Were Can Could Will Would Should
            Some Many Most All Both Each Every One Two Another Not Nobody Nothing Someone Still Yet Even Just Only
            Since While Although Because Finally First Next Later Today Tomorrow Yesterday It's That's There's I'm
            I'll I've He's She's We're You're They're Let's What's Here's Isn't Didn't Can't Won't Thanks Thank
            Sorry Ok Okay OK Well Sure Hello Hi Check Use Try See Take Keep Have Has Had To By Of Such Instead
            Otherwise Maybe Perhaps Once Until Unless Whether Wait Look Read Ask Tell Go Come Get Give Put Make Add
            Note Remember Think Say Sit Stop Start Open Close Click Press Choose Pick Call Send Write Buy Eat Drink
            Run Play Follow Avoid Consider Enjoy Good Great Nice Right Really Actually Currently Usually Generally
            Typically Additionally Furthermore Moreover Therefore Thus Hence Indeed Besides Afterwards Afterward
            Suddenly Soon Eventually Three Four Five Several Few More Less Neither Either Others Other Everyone
            Everybody Everything Anyone Anybody Anything Something Somebody Between During Under Over Through
            Without Within Despite According Be Been Being Would Could Might May Must Oh Ah Hey Hmm Congratulations
            Unfortunately Fortunately Luckily Sometimes Often Never Always Again Very Too Like Overall Second Third
            Last Same About Above Below Up Down Out Off Back Away Any Whose Whoever Whatever Doesn't Wasn't Weren't
            Aren't Couldn't Wouldn't Shouldn't Haven't Hasn't Hadn't You've We've They've You'll We'll They'll
            He'll She'll It'll I'd He'd She'd We'd They'd You'd Who's Where's How's""",
        "function": "the and of to is are was with that this it you for not have be your will which they from",
    },
    "de": {
        "never": """frl hrn fa bzgl dipl med phil jur rer habil bzw ca evtl ggf inkl exkl zzgl bspw vgl sog betr
            einschl entspr ehem urspr allg hrsg verf kath evang geb gest mio mrd tsd aufl gegr gepr vorauss insb
            insbes z.b d.h u.a i.d.r z.t o.ä u.ä wiss stellv beil""",
        "titles": "Hr Fr Mag Ing St Nr Abb Tab Jan Feb Mär Apr Jun Jul Aug Sep Sept Okt Nov Dez Fam Hl Bf Hbf",
        "names": "chr s.o s.u",
        "numbers": """nr nrn abs s art bd bde ziff rn kap abb tab str hauptstr pkt pos rdnr randnr lit anm anl aufl
            jg nov mind max min mwst inkl ca gem ab jan feb apr jun jul aug sep sept okt dez tel zi pl hs""",
        "numbers_as_written": "Mär Jän Mo Di Mi Do Fr Sa So",
        "starters": """Der Die Das Ein Eine Er Sie Es Wir Ihr Ich Du Dann Danach Dort Hier Heute Morgen Gestern Und
            Aber Oder Doch Denn Weil Wenn Als Nach Vor Bei Mit Für Im In Am An Auf Aus Bis Seit Von Zu Zum Zur Wie
            Was Wer Wo Warum Kann Ist Sind War Noch Nun Jetzt Auch Dies Diese Dieser Dieses Man Kein Keine Mein
            Unser Bitte Später Damit Dabei Deshalb Daher Dazu Darum Nur Alle Viele Manche Jeder Jede Ja Nein
            Vielleicht Beide Beides Dafür Dagegen Danke Eigentlich Einige Endlich Etwas Falls Gern Gerne Gut Haben
            Hat Ihre Immer Insgesamt Jedoch Leider Manchmal Meist Meistens Natürlich Neben Nicht Nichts Niemand Ob
            Obwohl Ohne Oft Plötzlich Schließlich Schon Sehr Seine Selbst So Sobald Solche Soll Sonst Sowohl Trotz
            Trotzdem Über Um Unter Vom Wann Während Wegen Weitere Welche Wieder Wird Wobei Woher Wohin Zuerst
            Zunächst Zwar Zwei Zwischen Drei Dank Durch Gegen Innerhalb Gibt Hallo Achten Achtung Siehe Viel
            Wichtig Genau Klar Außerdem Zudem Allerdings Nehmen Warten""",
        "function": "der die das und ist nicht ein eine mit für auf den dem zu von sich auch es ich sie wir im werden",
    },
    "fr": {
        "never": "dr mgr mme mmes mlle mlles chap éd boul cf p.ex p.-ex env av.j.-c bibl coll dép sté",
        "titles": "M MM Me Mme Mlle Pr Bd Dr Ste St Mgr Vve Cie Sté",
        "names": "cie s.a s.a.r.l av apr ap bd",
        "numbers": """n° nº no p pp art chap fig tél réf éd vol t al av env janv févr avr juil sept oct nov déc h
            min bd rd lot bât""",
        "numbers_as_written": "",
        "starters": """Le La Les L Un Une Il Elle Ils Elles On Nous Vous Je J Tu Ce Cette Ces Cela C C'est Ça Mais
            Et Ou Donc Puis Ensuite Quand Si Dans Pour Avec Sans Après Avant Comme Son Sa Ses Mon Ma Mes Oui Non
            Alors Ainsi Aussi Aujourd'hui Au Aux À Bien Car Cependant Chaque Combien Comment D'abord D'accord
            Demain Depuis Des De Du En Enfin Est Hier Ici Jamais Jusqu Leur Leurs Lorsque Maintenant Malgré Merci
            Même Ni Notre Votre Où Par Parce Pas Pendant Personne Peut Plus Plusieurs Pourquoi Pourtant Près Qu'est
            Que Quel Quelle Qui Rien Sous Souvent Sur Tous Tout Toute Très Trop Voici Voilà Voir Y Voyez Essayez
            Prenez Bonjour Salut Attention""",
        "function": "le la les des et est une un dans que qui pour pas vous nous sur avec du au ce il elle je",
    },
    "es": {
        "never": """dr dra sr sra srta sres sras srtas ud uds vd vds gral cnel lic arq excmo ilmo avda avd dpto izq
            dcha núm aprox dña dn prof profa ing c.p admón p.ej ej""",
        "titles": "D Dña Sto Sta Fdo EE Av Avda Cía Gob Pdte Sgto Cap Ing",
        "names": "s.a s.l s.a.u s.r.l ltda cía s.n c.v",
        "numbers": """n° nº n.º núm núms no párr párrf párrs art arts cap caps pág págs fig figs tel tlf tfno ext
            vol ed cra cl kr av apdo aprox ene feb mar abr may jun jul ago sep sept oct nov dic t c""",
        "numbers_as_written": "Ene Abr Ago Dic Mar Cra",
        "starters": """El La Los Las Un Una Él Ella Ellos Ellas Yo Tú Nosotros Es Son Está Pero Y O Cuando Donde
            Como Luego Después Entonces Esto Esta Este En Por Para Con Sin Lo Se Su Sus Mi Sí También Al Algunos
            Ahora Además Antes Aquí Así Aunque Bueno Cada Casi Cómo Cuál Cuándo Cuánto De Del Desde Dónde Durante
            Ese Esa Eso Esos Estos Fue Gracias Ha Hace Hasta Hay Hola Hoy Ayer Mañana Mientras Muchos Mucho Muy Más
            Me Ni Ningún No Nada Nadie Nos Nunca Otra Otro Porque Pues Primero Qué Quién Quizás Según Si Siempre
            Sobre Solo Te Tal Tiene Todo Todos Todas Tras Tu Unos Usted Ustedes Ya Finalmente Espero Envíe Véase
            Claro Perfecto Vale""",
        "function": "el la los las que de en un una es por para con no se del al su lo como más está",
    },
    "it": {
        "never": """sig sigg sig.ra sig.na sig.re dott dott.ssa dr.ssa avv dir amm geom egr gent spett prof prof.ssa
            ing p.es tel c.so p.zza v.le ecc.mo ill.mo mons idraul meteor""",
        "titles": "Rag On Arch Ing S Fraz Cav Comm Sen Min Gen",
        "names": "s.p.a s.r.l s.n.c s.a.s f.lli",
        "numbers": """n num nn pag pagg p pp cap capp fig figg art artt tel vol tab sez col par gen feb mar apr mag
            giu lug ago set ott nov dic ca c.a ed cod""",
        "numbers_as_written": "Gen Mag Set Ott Ago Dic Lug Giu",
        "starters": """Il Lo La I Gli Le Un Uno Una Lui Lei Noi Voi Loro È Sono E Se Poi Dopo Questo Questa Per Non
            Ci Anche Ma Quando Al Alcuni Allora Ancora Appena Bene Certo Che Chi Come Con Così Cosa Cosi Da Dal
            Dalla Del Della Di Domani Dove Due Durante Ecco Eppure Era Fa Forse Già Grazie Ha Ho Hanno Ieri In
            Infatti Infine Inoltre Invece Io Tu Mai Mentre Mi Molti Molto Ne Nei Nel Nella Nessuno Niente No Oggi
            Ogni Oppure Ora Però Perché Più Poiché Può Prima Qual Quale Quanto Quella Quello Qui Quindi Senza
            Sempre Si Sì Solo Sopra Sotto Su Sulla Tra Tutti Tutto Va Vi Ciao Buongiorno Arrivederci Vedi""",
        "function": "il lo la gli che di un una per non con del della sono come più nel alla ma anche questo ho",
    },
    "pt": {
        "never": """sr sra srta srs sras exmo exma profa prof dr dra eng arq av p.ex ex núm aprox ilmo att v.ex
            v.exa v.sa""",
        "titles": "D Dra Eng Av Arq Pe Fr Sto Sta Gen Cel Cap Ten Sarg R Al Pç",
        "names": "ltda cia s.a s.a.s",
        "numbers": """n n.º nº n° no núm pág págs p pp cap caps fig figs art arts vol tel ramal ed r av séc jan fev
            mar abr mai jun jul ago set out nov dez t cx km""",
        "numbers_as_written": "Jan Fev Mar Abr Mai Jun Jul Ago Set Out Nov Dez Ver Op",
        "starters": """O A Os As Um Uma Ele Ela Eles Elas Nós Eu Você Vocês São É Mas Depois Então Isto Isso Em No
            Na Nos Nas Com Sem Não Sim Também E Ou Se Quando Como Onde Por Porque Para Ao Aos À Agora Ainda Além
            Alguns Ali Amanhã Antes Apenas Aqui Assim Até Cada Claro Com Contudo Da Das De Depois Desde Do Dos Dois
            Durante Embora Enquanto Entre Esse Essa Esta Este Está Eu Foi Há Hoje Já Lá Mais Meu Minha Muito Muitos
            Nada Nem Ninguém Nunca Obrigado Olá Ontem Outra Outro Perto Pode Pois Porém Pouco Primeiro Qual Quanto
            Que Quem Segundo Sempre Seu Sua Sob Sobre Tal Talvez Tem Todo Todos Todas Três Tudo Tu Vamos Veja""",
        "function": "o os as que de do da em um uma é não com para por se no na mais como você mas está são",
    },
    "nl": {
        "never": """dhr mevr mw bijv bv d.w.z m.a.w o.a a.u.b drs ir ing prof mr dr jhr enz.m resp ca incl excl evt
            vgl zgn z.g.n o.m n.a.v i.v.m m.b.t t.a.v i.p.v t/m a.s jl""",
        "titles": "St Ds Jr Sr",
        "names": "b.v n.v v.o.f c.s",
        "numbers": "nr nrs blz p pag art afb fig hfst jan feb mrt apr jun jul aug sep sept okt nov dec tel ca max min",
        "numbers_as_written": "",
        "starters": """De Het Een Hij Zij Ze We Wij Ik Je Jij Jullie U Dit Dat Deze Die Er Maar En Of Dus Want Toen
            Daarna Als Wanneer Waar Waarom Hoe Wat Wie Welke In Op Aan Bij Met Voor Na Van Uit Om Door Over Onder
            Tijdens Zonder Ook Nog Nu Hier Daar Vandaag Morgen Gisteren Ja Nee Niet Geen Alle Veel Sommige
            Misschien Soms Altijd Nooit Mijn Jouw Zijn Haar Ons Onze Hun Is Kan Wil Heeft Hebben Bedankt Hallo Goed
            Natuurlijk""",
        "function": "de het een en van is dat niet op te zijn met voor die aan er om als maar ook je ik",
    },
    "da": {
        "never": "hr skt fru frk bl.a f.eks fx dvs d.v.s evt ca jf mht pga ift mfl inkl ekskl hhv afd adr",
        "titles": "Hr Fr Kl Dr Nr",
        "names": "a/s aps",
        "numbers": """nr kl s st stk art kap fig tlf ca jan feb mar apr jun jul aug sep sept okt nov dec bd pkt maks
            min tir ons tor fre lør søn man""",
        "numbers_as_written": "",
        "starters": """Den Det De En Et Han Hun Vi Jeg Du I Man Der Her Hvad Hvem Hvor Hvorfor Hvordan Hvornår Men
            Og Eller Så Da Når Hvis Fordi Som Med På Til Fra For Af Om Efter Før Under Over Ved Mellem Uden Nu Også
            Ikke Ingen Alle Mange Nogle Min Din Hans Hendes Vores Deres Er Var Har Kan Vil Skal Ja Nej Måske I Dag
            Tak Hej Desuden Derfor Derefter Endelig Først Dette Disse""",
        "function": "og det er en et at på til som med for af ikke den har jeg han hun vi var de",
    },
    "sv": {
        "never": "t.ex bl.a d.v.s dvs m.m o.s.v osv p.g.a pga ca inkl exkl resp hr fr dr prof jfr ev s.k fil mag",
        "titles": "Hr Fr Kl St S:t Nr",
        "names": "ab",
        "numbers": "nr kl s sid art kap fig tel ca jan feb mar apr jun jul aug sep sept okt nov dec bd max min",
        "numbers_as_written": "",
        "starters": """Den Det De En Ett Han Hon Vi Jag Du Ni Man Där Här Vad Vem Var Varför Hur När Men Och Eller
            Så Då Om Eftersom Som Med På Till Från För Av Efter Före Under Över Vid Mellan Utan Nu Också Inte Ingen
            Alla Många Några Min Din Hans Hennes Vår Deras Är Har Kan Vill Ska Ja Nej Kanske Idag Tack Hej Dessutom
            Därför Sedan Först Detta Dessa""",
        "function": "och det är en ett att på till som med för av inte den har jag han hon vi var de",
    },
    "no": {
        "never": "bl.a f.eks dvs d.v.s mv osv pga ca inkl ekskl hr fru frk dr prof jf evt",
        "titles": "Hr Kl St Nr",
        "names": "a/s as",
        "numbers": "nr kl s art kap fig tlf ca jan feb mar apr jun jul aug sep sept okt nov des bd maks min",
        "numbers_as_written": "",
        "starters": """Den Det De En Et Ei Han Hun Vi Jeg Du Dere Man Der Her Hva Hvem Hvor Hvorfor Hvordan Når Men
            Og Eller Så Da Hvis Fordi Som Med På Til Fra For Av Om Etter Før Under Over Ved Mellom Uten Nå Også
            Ikke Ingen Alle Mange Noen Min Din Er Var Har Kan Vil Skal Ja Nei Kanskje Takk Hei Dette Disse""",
        "function": "og det er en et på til som med for av ikke den har jeg han hun vi var de å",
    },
    "fi": {
        "never": "esim mm ym yms ks vrt tri prof fil maist dosent dipl ins os ent nk ns",
        "titles": "",
        "names": "oy oyj ab",
        "numbers": "n nro s klo ks kpl luku kuva puh noin",
        "numbers_as_written": "",
        "starters": """Se Hän Minä Sinä Me Te He Tämä Nämä Ne Mutta Ja Tai Kun Jos Koska Että Missä Mitä Kuka Miksi
            Miten Milloin Nyt Sitten Täällä Tänään Huomenna Eilen Myös Ei Kyllä Ehkä Kaikki Monet Ennen Jälkeen
            Kiitos Hei On Oli Voi""",
        "function": "ja on se että ei hän oli ovat kun mutta niin tai myös joka mitä kuin",
    },
    "pl": {
        "never": """np tzn tzw tj m.in ul al gen płk kpt por św ks bp abp dr hab inż mgr prof lek red wł zob por
            itp.m godz wg ws ww św hr bałt fr ang niem łac pol ros""",
        "titles": "Św Ks Al Ul Pl Os",
        "names": "s.a sp z.o.o o.o",
        "numbers": "nr s str r w art ust pkt par poz rys tab tel godz ok t rozdz lp zł gr",
        "numbers_as_written": "",
        "starters": """To Ten Ta Te Ci On Ona Ono Oni My Wy Ja Ty Jest Są Był Była Ale I A Lub Albo Więc Bo Gdy
            Kiedy Jeśli Jeżeli Ponieważ Gdzie Co Kto Dlaczego Jak W We Na Do Z Ze Za Po Przed Pod Nad Przy Dla Od O
            U Teraz Potem Tutaj Tu Tam Dziś Dzisiaj Jutro Wczoraj Także Też Nie Tak Może Wszyscy Wiele Niektórzy
            Mój Twój Jego Jej Ich Nasz Dziękuję Cześć Dzień Proszę Oto Następnie Jednak Dlatego Czy""",
        "function": "i w na się nie to jest z do że o jak za co ale po są tak od przez dla czy",
    },
    "cs": {
        "never": "např tzv tj mj apod.m ing mgr bc mudr judr phdr doc prof dr sv ul nám tř resp cca hl st ml tel",
        "titles": "Sv Ul Nám",
        "names": "s.r.o a.s o.s spol v.o.s",
        "numbers": "č čís s str r odst písm kap obr tab tel cca st nar zal hod min mil tis",
        "numbers_as_written": "",
        "starters": """To Ten Ta Ty Ti On Ona Oni My Vy Já Je Jsou Byl Byla Ale A I Nebo Protože Když Kdy Pokud Kde
            Co Kdo Proč Jak V Ve Na Do Z Ze Za Po Před Pod Nad Při Pro Od O U Teď Potom Pak Tady Tam Dnes Zítra
            Včera Také Ne Ano Možná Všichni Mnoho Někteří Můj Tvůj Jeho Její Jejich Náš Děkuji Ahoj Prosím""",
        "function": "a je to se na v že s z do o jak ale po jsou by tak si nebo pro když",
    },
    "sk": {
        "never": "napr tzv tj tzn mj ing mgr bc mudr judr phdr doc prof dr sv ul nám resp cca hl st ml tel arch akad",
        "titles": "Sv Ul Nám",
        "names": "s.r.o a.s o.z spol v.o.s",
        "numbers": "č čís s str r ods písm kap obr tab tel cca st nar hod min mil tis",
        "numbers_as_written": "",
        "starters": """To Ten Tá Tí On Ona Oni My Vy Ja Je Sú Bol Bola Ale A I Alebo Pretože Keď Kedy Ak Kde Čo Kto
            Prečo Ako V Vo Na Do Z Zo Za Po Pred Pod Nad Pri Pre Od O U Teraz Potom Tu Tam Dnes Zajtra Včera Tiež
            Nie Áno Možno Všetci Mnoho Niektorí Môj Tvoj Jeho Jej Ich Náš Ďakujem Ahoj Prosím""",
        "function": "a je to sa na v že s z do o ako ale po sú by tak si alebo pre keď",
    },
    "ro": {
        "never": "dl dna dnul str bd bl sc ap prof dr ing av jud ex etc.m nr",
        "titles": "Dl Sf",
        "names": "s.a s.r.l",
        "numbers": "nr art alin lit pag p cap fig tel vol str",
        "numbers_as_written": "",
        "starters": """El Ea Ei Ele Noi Voi Eu Tu Este Sunt Dar Și Sau Dacă Când Unde Ce Cine De În La Cu Pentru Din
            Pe Nu Da""",
        "function": "și de la în că nu o un este cu pe se mai din sunt pentru",
    },
    "hu": {
        "never": "dr prof ifj id özv pl stb.m ún kb gr ill vö ld",
        "titles": "",
        "names": "kft rt bt zrt",
        "numbers": "sz o old kb u ker em tel",
        "numbers_as_written": "",
        "starters": """A Az Ez Ő Ők Mi Ti Én Te De És Vagy Ha Amikor Hol Ki Miért Hogyan Nem Igen Most Itt Ott Ma
            Holnap Tegnap""",
        "function": "a az és hogy nem is egy van ez de meg volt csak már ha",
    },
    "tr": {
        "never": "dr prof doç av sn bkz vb.m örn yrd öğr gör alb gen kur müh uzm",
        "titles": "Sn Av",
        "names": "ltd şti a.ş",
        "numbers": "no s sf bkz md cad sok mah apt tel",
        "numbers_as_written": "",
        "starters": """Bu Şu O Biz Siz Onlar Ben Sen Ama Ve Veya Çünkü Eğer Ne Kim Nerede Neden Nasıl Evet Hayır
            Şimdi Bugün""",
        "function": "ve bir bu da de için ile çok ne var gibi daha ama olarak",
    },
    "ru": {
        "never": """ул вул пгт чл стр корп им проф акад см млн млрд обл тел рис табл гл просп пр-т пер пл наб г-н
            г-жа т.е т.к т.н напр ср доц канд д-р св о.о ст гр мин долл адм ген полк кап лейт с бул ш мкр р-н пос
            дер""",
        "titles": "Ул Пр Пер Пл Наб Св",
        "names": "г гг в вв др ж кв тыс эт",
        "numbers": """д кв г стр рис табл гл см п пп ст т тел корп оф эт ул вв гг № п.п ч разд прил вып янв фев мар
            апр авг сент окт нояб дек""",
        "numbers_as_written": "",
        "starters": """Он Она Оно Они Мы Вы Я Ты Это Этот Эта Эти Но И А Или Если Когда Потом Затем Там Здесь В Во
            На По Для С Со Из К Так Как Что Кто Где Все Всё Мне Его Её Их Да Нет Без Более Был Была Были Быть Ведь
            Весь Вот Вчера Сегодня Завтра Вскоре Вместе Даже До Его Ему Ей Есть Ещё Еще За Зачем Именно Иногда
            Каждый Какой Который Куда Ли Лишь Между Много Многие Может Можно Мой Наш Не Некоторые Никто Ничего Ну О
            Об Однако Около От Очень Перед Под Поэтому Почему После При Про Сейчас Сначала Сколько Спасибо Привет
            Такой Также Тем Теперь То Тогда Только Тот У Уже Хотя Через Чтобы Эх Ваш Свой Пока Звоните""",
        "function": "и в не на что с это как по но он она мы вы они для его от из ещё был бы же то так",
    },
    "uk": {
        "never": """вул просп пров пл ім проф акад доц чл див напр тобто обл с м смт р о оз св ст ред наук укр рос
            англ грец п-н канд заст нач ген полк гр тел адр""",
        "titles": "Вул Пл Св",
        "names": "р рр ст др грн коп тис млн млрд",
        "numbers": """буд кв стор с ст т тел рис табл п пп гл розд див № р ч вип корп оф січ лют берез квіт трав
            черв лип серп""",
        "numbers_as_written": "",
        "starters": """Він Вона Воно Вони Ми Ви Я Ти Це Цей Ця Ці Але І Й А Або Якщо Коли Потім Там Тут У В На По
            Для З Із Зі Як Що Хто Де Все Всі Його Її Їх Так Ні Не Сьогодні Завтра Вчора Тому Також Проте Однак
            Після Перед Дякую Привіт Чому Може""",
        "function": "і в не на що з це як та до у але він вона ми ви вони для його від є ще був би же",
    },
    "bg": {
        "never": "ул бул гр пл ж.к проф акад доц инж д-р г-н г-жа напр т.е т.нар вкл изд ген полк св чл млн млрд хил",
        "titles": "Ул Бул Св",
        "names": "г в др лв ст",
        "numbers": "стр с г чл ал т фиг табл гл тел ет ап бл вх №",
        "numbers_as_written": "",
        "starters": """Той Тя То Те Ние Вие Аз Ти Това Този Тази Но И А Или Ако Когато Там Тук В На По За От До Как
            Какво Кой Къде Да Не""",
        "function": "и в на да не се за от с е че по са като ще до си това",
    },
    "kk": {
        "never": "т.б т.с.с т.с ж.б мыс көш даң обл ауд б.з.д б.з проф акад млн млрд",
        "titles": "",
        "names": "ж жж ғ ғғ т",
        "numbers": "б бет сур кест тел үй пәт ғ ж №",
        "numbers_as_written": "",
        "starters": "Ол Олар Біз Сіз Мен Сен Бұл Осы Бірақ Және Немесе Егер Қашан Қайда Не Кім Иә Жоқ Сондықтан Содан",
        "function": "және мен бұл да де бір үшін деп болып ол қазақ бар",
    },
    "el": {
        "never": "κ κα κος π.χ δηλ βλ πρβλ αρ σελ τηλ λ.χ δρ καθ οδ λεωφ αγ",
        "titles": "Κ Αγ",
        "names": "π.χ μ.χ α.ε ο.ε",
        "numbers": "αρ σελ κεφ τηλ εικ σχ παρ αριθ",
        "numbers_as_written": "",
        "starters": """Ο Η Το Οι Τα Τις Τους Ένας Μια Αυτός Αυτή Αυτό Εγώ Εσύ Εμείς Εσείς Και Αλλά Αν Όταν Πού Τι
            Ποιος Γιατί Πώς Ναι Όχι""",
        "function": "και το να του η της με που την από για είναι στο δεν",
    },
    "ar": {
        "never": "د أ م ص س ج ق هـ ت",
        "titles": "",
        "names": "",
        "numbers": "ص ج رقم",
        "numbers_as_written": "",
        "starters": "",
        "function": "",
    },
    "hi": {
        "never": "डॉ श्री श्रीमती प्रो पं कु सं",
        "titles": "",
        "names": "",
        "numbers": "सं पृ क्र रु",
        "numbers_as_written": "",
        "starters": "",
        "function": "",
    },
    "mr": {
        "never": "डॉ श्री श्रीमती प्रा कु पं",
        "titles": "",
        "names": "",
        "numbers": "रु पृ क्र",
        "numbers_as_written": "",
        "starters": "",
        "function": "",
    },
}
"""Per language (ISO 639-1) the lists by name, words separated by white space."""
