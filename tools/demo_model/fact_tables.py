"""The tables of plain facts that the shipped model is taught, with the phrasings of their questions."""

from __future__ import annotations

from .facts import Kind, Row, a, bare, many, words


def _rows(keys: str, table: str) -> tuple[Row, ...]:
    """Rows from a compact table: one fact per semicolon, one value per comma."""
    names = keys.split()
    rows = tuple(
        dict(zip(names, (value.strip() for value in line.split(",")), strict=True))
        for line in " ".join(table.split()).split(";")
    )
    return tuple(
        {**row, "an": a(row["x"]), "xs": many(row["x"]), "any": a(row["y"]), "bare": bare(row["y"])} for row in rows
    )


_COUNTRIES = _rows(
    "x y c",
    """France, Paris, Europe; Germany, Berlin, Europe; Italy, Rome, Europe; Spain, Madrid, Europe;
    Portugal, Lisbon, Europe; England, London, Europe; Ireland, Dublin, Europe; Norway, Oslo, Europe;
    Sweden, Stockholm, Europe; Finland, Helsinki, Europe; Denmark, Copenhagen, Europe;
    Poland, Warsaw, Europe; Austria, Vienna, Europe; Greece, Athens, Europe;
    Hungary, Budapest, Europe; Belgium, Brussels, Europe; Russia, Moscow, Europe;
    China, Beijing, Asia; Japan, Tokyo, Asia; India, New Delhi, Asia; Thailand, Bangkok, Asia;
    Egypt, Cairo, Africa; Kenya, Nairobi, Africa; Canada, Ottawa, North America;
    Mexico, Mexico City, North America; Cuba, Havana, North America; Peru, Lima, South America;
    Brazil, Brasilia, South America; Australia, Canberra, Oceania;
    Switzerland, Bern, Europe; Turkey, Ankara, Asia; South Korea, Seoul, Asia; Argentina, Buenos Aires, South America;
    Scotland, Edinburgh, Europe; Ukraine, Kyiv, Europe""",
)

_OPPOSITE_PAIRS = _rows(
    "x y",
    """hot, cold; big, small; tall, short; fast, slow; happy, sad; old, new; light, dark; wet, dry;
    hard, soft; open, closed; full, empty; clean, dirty; loud, quiet; good, bad; early, late;
    high, low; up, down; left, right; near, far; rich, poor; strong, weak; thick, thin; wide, narrow;
    day, night; true, false""",
)
_DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_MONTHS = words("January February March April May June July August September October November December")


def _neighbours(names: list[str], step: int) -> tuple[Row, ...]:
    """Each name with the one that many places further on, around the circle."""
    followers = [names[(i + step) % len(names)] for i in range(len(names))]
    return tuple({"x": x, "y": y, "bare": y} for x, y in zip(names, followers, strict=True))


_AND = ("And {x}?", "What about {x}?", "And what about {x}?")
_AND_A = ("And {an}?", "What about {an}?", "And what about {an}?")

KINDS: tuple[Kind, ...] = (
    Kind(
        "capital",
        _COUNTRIES,
        (
            "What is the capital of {x}?",
            "Which city is the capital of {x}?",
            "Tell me the capital of {x}.",
            "Can you tell me the capital of {x}?",
            "What is the capital city of {x}?",
            "Do you know the capital of {x}?",
            "Name the capital of {x}.",
            "What is the name of the capital of {x}?",
            "I forgot the capital of {x}. What is it?",
        ),
        "The capital of {x} is {y}.",
        "{y}.",
        "{bare}.",
        _AND,
    ),
    Kind(
        "capital-of",
        _COUNTRIES,
        (
            "Which country has {y} as its capital?",
            "{y} is the capital of which country?",
            "What country is {y} the capital of?",
            "Of which country is {y} the capital?",
            "Tell me which country {y} is the capital of.",
            "Which country's capital is {y}?",
            "Do you know which country {y} is the capital of?",
        ),
        "{y} is the capital of {x}.",
        "{x}.",
        "{x}.",
        ("And {y}?", "What about {y}?"),
    ),
    Kind(
        "continent",
        _COUNTRIES,
        (
            "On which continent is {x}?",
            "Which continent is {x} in?",
            "What continent is {x} in?",
            "Where in the world is {x}?",
            "In which part of the world is {x}?",
            "Tell me which continent {x} is in.",
            "Can you tell me the continent of {x}?",
        ),
        "{x} is in {c}.",
        "{c}.",
        "{c}.",
        _AND,
    ),
    Kind(
        "colour",
        _rows(
            "x y",
            """grass, green; the sky, blue; snow, white; the sun, yellow; a lemon, yellow;
            a banana, yellow; a strawberry, red; a tomato, red; an orange, orange; a carrot, orange;
            coal, black; blood, red; milk, white; chocolate, brown; a polar bear, white;
            a frog, green; a flamingo, pink; a crow, black; a cucumber, green; an elephant, grey;
            a fire engine, red; a swan, white; a leaf, green; a plum, purple""",
        ),
        (
            "What colour is {x}?",
            "What is the colour of {x}?",
            "Tell me the colour of {x}.",
            "Which colour is {x}?",
            "What color is {x}?",
            "Can you tell me what colour {x} is?",
            "What colour does {x} have?",
            "Do you know the colour of {x}?",
        ),
        "{x} is {y}.",
        "{y}.",
        "{bare}.",
        _AND,
    ),
    Kind(
        "sound",
        _rows(
            "x y",
            """dog, barks; cat, meows; cow, moos; sheep, bleats; pig, oinks; duck, quacks;
            horse, neighs; lion, roars; wolf, howls; frog, croaks; bee, buzzes; snake, hisses;
            owl, hoots; mouse, squeaks""",
        ),
        (
            "What sound does {an} make?",
            "What noise does {an} make?",
            "What does {an} say?",
            "How does {an} sound?",
            "Which sound does {an} make?",
            "Tell me what sound {an} makes.",
            "Do you know what sound {an} makes?",
            "What sound do {xs} make?",
            "What do {xs} say?",
        ),
        "{an} {y}.",
        "It {y}.",
        "{bare}.",
        _AND_A,
    ),
    Kind(
        "young",
        _rows(
            "x y",
            """dog, puppy; cat, kitten; cow, calf; sheep, lamb; horse, foal; duck, duckling; hen, chick;
            bear, cub; goat, kid; frog, tadpole; goose, gosling; swan, cygnet; pig, piglet""",
        ),
        (
            "What is a baby {x} called?",
            "What do you call a baby {x}?",
            "What is a young {x} called?",
            "What do you call a young {x}?",
            "What is the name for a young {x}?",
            "Tell me the word for a baby {x}.",
            "What do people call a young {x}?",
            "What are baby {xs} called?",
        ),
        "A young {x} is called {any}.",
        "{any}.",
        "{bare}.",
        ("And a young {x}?", "And a baby {x}?", "What about a young {x}?"),
    ),
    Kind(
        "home",
        _rows(
            "x y",
            """bee, a hive; bird, a nest; spider, a web; rabbit, a burrow; bear, a cave;
            horse, a stable; fish, a pond; lion, a den; monkey, the forest; camel, the desert;
            whale, the sea; hen, a coop""",
        ),
        (
            "Where does {an} live?",
            "Where does {an} make its home?",
            "What is the home of {an}?",
            "In what place does {an} live?",
            "Tell me where {an} lives.",
            "Do you know where {an} lives?",
            "Where is the home of {an}?",
            "Where do {xs} live?",
        ),
        "{an} lives in {y}.",
        "In {y}.",
        "{bare}.",
        _AND_A,
    ),
    Kind(
        "legs",
        _rows(
            "x y n",
            """dog, four, four; cat, four, four; spider, eight, eight; bird, two, two; ant, six, six; cow, four, four;
            beetle, six, six; snake, no, none; fish, no, none; duck, two, two; horse, four, four; crab, ten, ten""",
        ),
        (
            "How many legs does {an} have?",
            "How many legs has {an}?",
            "What number of legs does {an} have?",
            "Tell me how many legs {an} has.",
            "Can you tell me how many legs {an} has?",
            "Do you know how many legs {an} has?",
            "On how many legs does {an} walk?",
            "How many legs do {xs} have?",
        ),
        "{an} has {y} legs.",
        "{y} legs.",
        "{n}.",
        _AND_A,
    ),
    Kind(
        "opposite",
        _OPPOSITE_PAIRS + tuple({"x": row["y"], "y": row["x"], "bare": row["x"]} for row in _OPPOSITE_PAIRS),
        (
            "What is the opposite of {x}?",
            "Tell me the opposite of {x}.",
            "Which word is the opposite of {x}?",
            "What word means the opposite of {x}?",
            "Can you tell me the opposite of {x}?",
            "Give me the opposite of {x}.",
            "Do you know the opposite of {x}?",
        ),
        "The opposite of {x} is {y}.",
        "{y}.",
        "{bare}.",
        _AND,
    ),
    Kind(
        "day-after",
        _neighbours(_DAYS, 1),
        (
            "What day comes after {x}?",
            "Which day comes after {x}?",
            "What is the day after {x}?",
            "Which day follows {x}?",
            "Tell me the day after {x}.",
            "If today is {x}, what day is tomorrow?",
        ),
        "The day after {x} is {y}.",
        "{y}.",
        "{bare}.",
        ("And after {x}?", "What about after {x}?"),
    ),
    Kind(
        "day-before",
        _neighbours(_DAYS, -1),
        (
            "What day comes before {x}?",
            "Which day comes before {x}?",
            "What is the day before {x}?",
            "Tell me the day before {x}.",
            "Can you tell me the day before {x}?",
            "If today is {x}, what day was yesterday?",
        ),
        "The day before {x} is {y}.",
        "{y}.",
        "{bare}.",
        ("And before {x}?", "What about before {x}?"),
    ),
    Kind(
        "month-after",
        _neighbours(_MONTHS, 1),
        (
            "What month comes after {x}?",
            "Which month comes after {x}?",
            "What is the month after {x}?",
            "Which month follows {x}?",
            "Tell me the month after {x}.",
            "What is the next month after {x}?",
        ),
        "The month after {x} is {y}.",
        "{y}.",
        "{bare}.",
        ("And after {x}?", "What about after {x}?"),
    ),
    Kind(
        "kind",
        _rows(
            "x y",
            """rose, flower; tulip, flower; oak, tree; pine, tree; apple, fruit; pear, fruit;
            cherry, fruit; carrot, vegetable; potato, vegetable; onion, vegetable; piano, instrument;
            violin, instrument; drum, instrument; hammer, tool; saw, tool; dog, animal;
            tiger, animal; eagle, bird; penguin, bird; shark, fish; salmon, fish; bee, insect;
            butterfly, insect; shirt, garment; car, vehicle""",
        ),
        (
            "What is {an}?",
            "What kind of thing is {an}?",
            "Tell me what {an} is.",
            "Can you tell me what {an} is?",
            "What sort of thing is {an}?",
            "Do you know what {an} is?",
            "What do you know about {an}?",
        ),
        "{an} is {any}.",
        "{any}.",
        "{bare}.",
        _AND_A,
    ),
    Kind(
        "job",
        _rows(
            "x y n",
            """baker, bakes bread, bakes; teacher, teaches children, teaches; farmer, grows food, grows;
            doctor, helps sick people, helps; painter, paints pictures, paints; pilot, flies planes, flies;
            sailor, sails ships, sails; gardener, plants flowers, plants; cook, cooks meals, cooks;
            writer, writes books, writes; singer, sings songs, sings; tailor, sews clothes, sews""",
        ),
        (
            "What does {an} do?",
            "What is the job of {an}?",
            "What work does {an} do?",
            "Tell me what {an} does.",
            "Can you tell me what {an} does?",
            "What does {an} do all day?",
            "Do you know what {an} does?",
        ),
        "{an} {y}.",
        "{an} {y}.",
        "{n}.",
        _AND_A,
    ),
    Kind(
        "source",
        _rows(
            "x y",
            """milk, cows; honey, bees; wool, sheep; silk, silkworms; wood, trees; bacon, pigs;
            rain, clouds; light, the sun""",
        ),
        (
            "Where does {x} come from?",
            "What does {x} come from?",
            "Tell me where {x} comes from.",
            "Where do we get {x} from?",
            "From what do we get {x}?",
            "Do you know where {x} comes from?",
        ),
        "{x} comes from {y}.",
        "From {y}.",
        "{bare}.",
        _AND,
    ),
    Kind(
        "made-of",
        _rows(
            "x y",
            """bread, flour; cheese, milk; wine, grapes; a book, paper; a window, glass; a coin, metal;
            jam, fruit; ice, water; a candle, wax; a tyre, rubber""",
        ),
        (
            "What is {x} made of?",
            "What is {x} made from?",
            "Tell me what {x} is made of.",
            "Can you tell me what {x} is made of?",
            "From what is {x} made?",
            "Do you know what {x} is made of?",
        ),
        "{x} is made of {y}.",
        "{y}.",
        "{bare}.",
        _AND,
    ),
    Kind(
        "plural",
        _rows(
            "x y",
            """mouse, mice; child, children; foot, feet; tooth, teeth; man, men; woman, women;
            goose, geese; leaf, leaves""",
        ),
        (
            "What is the plural of {x}?",
            "Tell me the plural of {x}.",
            "What is the plural form of {x}?",
            "Give me the plural of {x}.",
            "Can you tell me the plural of {x}?",
            "What do you call more than one {x}?",
        ),
        "The plural of {x} is {y}.",
        "{y}.",
        "{bare}.",
        _AND,
    ),
)
