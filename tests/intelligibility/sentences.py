"""Everyday sentences of our own, with numbers and names, as an assistant would say them."""

ENGLISH = (
    "Your table is booked for four people on Friday evening.",
    "The train to the airport leaves from platform nine in twenty minutes.",
    "I have added milk, bread and a dozen eggs to your shopping list.",
    "There is light rain in the morning, but the afternoon stays dry.",
    "Please hold the line while I look up your order number.",
    "The museum opens at ten and closes at half past six.",
    "Turn left at the second traffic light and follow the river.",
    "Your parcel was handed to a neighbour because nobody was at home.",
    "She bought a small house with a red door near the old harbour.",
    "We can move the meeting to next Tuesday if that suits you better.",
)
GERMAN = (
    "Ihr Tisch ist für vier Personen am Freitagabend reserviert.",
    "Der Zug zum Flughafen fährt in zwanzig Minuten von Gleis neun ab.",
    "Ich habe Milch, Brot und zehn Eier auf die Einkaufsliste gesetzt.",
    "Am Vormittag regnet es leicht, aber der Nachmittag bleibt trocken.",
    "Bitte bleiben Sie am Apparat, während ich Ihre Bestellung suche.",
    "Das Museum öffnet um zehn Uhr und schließt um halb sieben.",
    "Biegen Sie an der zweiten Ampel links ab und folgen Sie dem Fluss.",
    "Ihr Paket wurde beim Nachbarn abgegeben, weil niemand zu Hause war.",
    "Sie kaufte ein kleines Haus mit einer roten Tür am alten Hafen.",
    "Wir können das Treffen auf nächsten Dienstag verschieben.",
)
SPANISH = (
    "Su mesa está reservada para cuatro personas el viernes por la noche.",
    "El tren al aeropuerto sale del andén nueve dentro de veinte minutos.",
    "He añadido leche, pan y una docena de huevos a la lista de la compra.",
)
FRENCH = (
    "Votre table est réservée pour quatre personnes vendredi soir.",
    "Le train pour l'aéroport part du quai neuf dans vingt minutes.",
    "J'ai ajouté du lait, du pain et une douzaine d'œufs à la liste.",
)
ITALIAN = (
    "Il suo tavolo è prenotato per quattro persone venerdì sera.",
    "Il treno per l'aeroporto parte dal binario nove tra venti minuti.",
    "Ho aggiunto latte, pane e una dozzina di uova alla lista della spesa.",
)
