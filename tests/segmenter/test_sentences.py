import pytest

from tests.segmenter.helpers import spoken

ENDS = [
    ("Fine. Next one? Sure! Done", ["Fine.", "Next one?", "Sure!", "Done"]),
    ("Ok. No. Go!", ["Ok.", "No.", "Go!"]),
    ("What?! Never!!! Right.", ["What?!", "Never!!!", "Right."]),
    ("Well… maybe not. Wait… Look there.", ["Well… maybe not.", "Wait…", "Look there."]),
    ("I was ... hm ... busy. You?", ["I was ... hm ... busy.", "You?"]),
    ("we met at noon. then we ate. ok", ["we met at noon.", "then we ate.", "ok"]),
    ("All set.Here is the plan.", ["All set.", "Here is the plan."]),
    ("She lives in Rome. iPhones are sold there.", ["She lives in Rome.", "iPhones are sold there."]),
    ("He works at Yahoo! in sales. Nice.", ["He works at Yahoo! in sales.", "Nice."]),
]

NUMBERS = [
    ("Pi is 3.14 or so. Right.", ["Pi is 3.14 or so.", "Right."]),
    ("That makes 1,000.50 in all. Pay $12.50. Now.", ["That makes 1,000.50 in all.", "Pay $12.50.", "Now."]),
    ("At 10:45 we left. At 9.30 too.", ["At 10:45 we left.", "At 9.30 too."]),
    ("Version v1.2.3-rc.1 is out. Get it.", ["Version v1.2.3-rc.1 is out.", "Get it."]),
    ("Ping 10.0.0.7. It answers.", ["Ping 10.0.0.7.", "It answers."]),
    ("The result is 7. Odd.", ["The result is 7.", "Odd."]),
    ("He has 12. 5 are red.", ["He has 12.", "5 are red."]),
    ("Bring: 1. rope, 2. a lamp, 3. tea. Go.", ["Bring: 1. rope, 2. a lamp, 3. tea.", "Go."]),
]

ABBREVIATIONS = [
    ("Dr. Lund met Mrs. Ito. They ate.", ["Dr. Lund met Mrs. Ito.", "They ate."]),
    ("Use nuts, e.g. almonds, i.e. crunch. Fine.", ["Use nuts, e.g. almonds, i.e. crunch.", "Fine."]),
    ("Pots, pans, etc. We cook.", ["Pots, pans, etc.", "We cook."]),
    ("See Fig. 4 and No. 7. Clear.", ["See Fig. 4 and No. 7.", "Clear."]),
    ("I said no. Then I left.", ["I said no.", "Then I left."]),
    ("He moved to the U.S. She did not.", ["He moved to the U.S.", "She did not."]),
    ("The U.S. Army came. It left.", ["The U.S. Army came.", "It left."]),
    ("It opens at 8 a.m. and shuts at 5 p.m. Come by.", ["It opens at 8 a.m. and shuts at 5 p.m.", "Come by."]),
    ("We meet at 6 p.m. Monday. Bye.", ["We meet at 6 p.m. Monday.", "Bye."]),
    ("A. B. Moss wrote it. It sold.", ["A. B. Moss wrote it.", "It sold."]),
    ("Eat vitamin C. Drink water.", ["Eat vitamin C.", "Drink water."]),
    ("It was you and I. Did you know?", ["It was you and I.", "Did you know?"]),
    ("Lee et al. (2020) agree. Good.", ["Lee et al. (2020) agree.", "Good."]),
    ("Never mind. The rest is easy. Tell me. Now.", ["Never mind.", "The rest is easy.", "Tell me.", "Now."]),
    ("Acme Inc. Sweden grows. Acme Inc. The end.", ["Acme Inc. Sweden grows.", "Acme Inc.", "The end."]),
]

LANGUAGES = [
    ("Nimm z. B. Brot, d. h. etwas Festes. Gut.", ["Nimm z. B. Brot, d. h. etwas Festes.", "Gut."]),
    ("Er kauft Obst, Brot usw. Dann geht er.", ["Er kauft Obst, Brot usw.", "Dann geht er."]),
    ("Prof. Dr. med. Abel kommt. Schön.", ["Prof. Dr. med. Abel kommt.", "Schön."]),
    ("Es beginnt am 3. Oktober. Der 24. Mai passt nicht.", ["Es beginnt am 3. Oktober.", "Der 24. Mai passt nicht."]),
    ("Das war am 1. 5. 2020. Lange her.", ["Das war am 1. 5. 2020.", "Lange her."]),
    ("Sie wurde 1. Danach schlief sie.", ["Sie wurde 1.", "Danach schlief sie."]),
    ("Das kostet ca. 5 Mio. Euro. Viel!", ["Das kostet ca. 5 Mio. Euro.", "Viel!"]),
    ("M. Petit arrive, p. ex. demain. Il dort.", ["M. Petit arrive, p. ex. demain.", "Il dort."]),
    ("C'est vrai ? Oui ! Bien.", ["C'est vrai ?", "Oui !", "Bien."]),
    ("El Sr. López y la Sra. Gil vienen. ¿Sí? ¡Sí!", ["El Sr. López y la Sra. Gil vienen.", "¿Sí?", "¡Sí!"]),
    ("Son las 3 p. m. en Lima. Hola.", ["Son las 3 p. m. en Lima.", "Hola."]),
    ("Vedi pag. 3 e cap. 2. Poi torna.", ["Vedi pag. 3 e cap. 2.", "Poi torna."]),
    ("O Dr. Reis mora na Av. Sul. Bom.", ["O Dr. Reis mora na Av. Sul.", "Bom."]),
    ("Он живёт на ул. Мира, д. 7. Там тихо.", ["Он живёт на ул. Мира, д. 7.", "Там тихо."]),
    ("今天下雨。带伞吧！好吗？好", ["今天下雨。", "带伞吧！", "好吗？", "好"]),
    ("只要3.5元。便宜。", ["只要3.5元。", "便宜。"]),
    ("他说：“走吧。”我们走了。", ["他说：“走吧。”", "我们走了。"]),
    ("“走吗？”她问。“走。”", ["“走吗？”她问。", "“走。”"]),
    ("町（人口約5万人。2020年）は静か。山も近い。", ["町（人口約5万人。2020年）は静か。", "山も近い。"]),
    ("「いいよ。」と言った。帰る。", ["「いいよ。」と言った。", "帰る。"]),
    ("비가 와요. 집에 가요!", ["비가 와요.", "집에 가요!"]),
    ("हाँ। चलो।", ["हाँ।", "चलो।"]),
    ("هل أنت هنا؟ نعم.", ["هل أنت هنا؟", "نعم."]),
]

QUOTES = [
    ('"It rains." Ann sighed.', ['"It rains."', "Ann sighed."]),
    ('He cried "Run!" and ran. We hid.', ['He cried "Run!" and ran.', "We hid."]),
    ("“Why?” he asked. “No idea.”", ["“Why?” he asked.", "“No idea.”"]),
    ("„Kommst du?“, rief er. „Ja.“", ["„Kommst du?“, rief er.", "„Ja.“"]),
    ("Sie sagte: »Genug.« Dann ging sie.", ["Sie sagte: »Genug.«", "Dann ging sie."]),
    ("It (see p. 4. Then p. 6) is long. Yes.", ["It (see p. 4. Then p. 6) is long.", "Yes."]),
    ("We stopped (at 5 p.m.). It was late.", ["We stopped (at 5 p.m.).", "It was late."]),
    ("(He left.) Then she came.", ["(He left.)", "Then she came."]),
]


@pytest.mark.parametrize(("text", "expected"), ENDS + NUMBERS + ABBREVIATIONS + LANGUAGES + QUOTES)
def test_sentences(text: str, expected: list[str]) -> None:
    assert spoken(text) == expected


def test_an_open_quote_holds_back_for_a_while_only() -> None:
    text = 'She said "wait here. ' + "It goes on and on. " * 20
    cut = spoken(text)
    assert len(cut[0]) > 150
    assert cut[-5:] == ["It goes on and on."] * 5
