"""Texts of many languages and lengths, for embedding models; the same ones each time."""

from __future__ import annotations

import random

from support.checkpoints.tokenizer_texts import hard_texts

# The first article of the Universal Declaration of Human Rights in many languages, and what else people embed.
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "人人生而自由，在尊严和权利上一律平等。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "def add(a, b):\\n    return a + b  # sum",
    "SELECT name, count(*) FROM users WHERE id > 3 GROUP BY name;",
    "Ĉiuj homoj estas denaske liberaj kaj egalaj laŭ digno kaj rajtoj.",
    "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.",
    "Minden emberi lény szabadon születik és egyenlő méltósága és joga van.",
    "Toate ființele umane se nasc libere și egale în demnitate și în drepturi.",
    "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.",
    "Усі люди народжуються вільними і рівними у своїй гідності та правах.",
    "হাজার বছর ধরে আমি পথ হাঁটিতেছি পৃথিবীর পথে",
    "எல்லா மனிதர்களும் சுதந்திரமாகவே பிறக்கின்றனர்",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი",
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար",
    "Wilaya zote za watu huzaliwa huru na hali yao ni sawa",
    "A 2019 study (n=1,024) found 37.5% lower rates—p < 0.05.",
    "🙂 I loved it!!! 10/10 👍🏽 would buy again #happy @store https://shop.example/x?y=1",
)


def mixed_texts(n: int, seed: int = 0) -> list[str]:
    """Sentences, paragraphs, pages beyond the limits of most models, and hard texts for tokenizers.

    Args:
        n: number of texts.
        seed: another seed gives other texts.
    """
    draw = random.Random(seed)
    hard = hard_texts(n, seed=seed)
    return [_text(draw, hard, i) for i in range(n)]


def _text(draw: random.Random, hard: list[str], i: int) -> str:
    kind = i % 10
    if kind < 3:
        return hard[i].encode("utf-8", "replace").decode()
    if kind < 5:
        return draw.choice(SENTENCES)
    if kind < 8:
        return " ".join(draw.choice(SENTENCES) for _ in range(draw.randint(2, 6)))
    if kind < 9:
        return " ".join(
            f"{draw.choice(SENTENCES).split()[0]} {draw.choice(hard)[:30]}" for _ in range(draw.randint(4, 14))
        )
    return " ".join(draw.choice(SENTENCES) for _ in range(draw.randint(20, 60)))
