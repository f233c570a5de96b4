"""Questions that no table answers, so that the model learns what it does not know.

They come in three kinds: a fact's own phrasing about something that its table lacks, frames about anything at all,
and requests for what the model cannot do.
"""

from __future__ import annotations

import random

from .fact_tables import KINDS
from .facts import Kind, Question, a, bare, many, phrases, sentence
from .world import BOYS, GIRLS, made_up_word

REPLY = "I am only a small demonstration model, and I do not know that."

_PLACES = phrases(
    """Iceland | Chile | Vietnam | Ghana | Nigeria | Morocco | Iran | Iraq | Israel | Nepal | Mongolia | Romania |
    Bulgaria | Serbia | Croatia | Slovakia | Estonia | Latvia | Lithuania | Bolivia | Ecuador | Uruguay | Paraguay |
    Venezuela | Colombia | Panama | Jamaica | Ethiopia | Tanzania | Uganda | Zambia | Zimbabwe | Angola | Mali |
    Libya | Tunisia | Algeria | Yemen | Pakistan | Malaysia | Indonesia | Singapore | Texas | California | Florida |
    Bavaria | Sicily | Wales | Paradise | Atlantis | Narnia | Mars | Hamburg | Chicago | Boston | Milan | Lyon |
    Osaka | Sydney | Toronto | Dubai | Manchester | Glasgow | Barcelona | Amsterdam | Zurich | Prague | Venice |
    Shanghai | Mumbai | New Zealand | South Africa | Saudi Arabia | New York | San Francisco | Los Angeles |
    the Netherlands | the moon"""
)
_THINGS = phrases(
    """giraffe | zebra | kangaroo | koala | gorilla | hamster | crocodile | octopus | jellyfish | dolphin | parrot |
    peacock | raven | pigeon | mosquito | worm | snail | lizard | dinosaur | unicorn | vampire | zombie | table |
    chair | sofa | lamp | clock | phone | computer | laptop | keyboard | screen | printer | camera | radio |
    television | fridge | oven | bicycle | truck | rocket | satellite | bridge | castle | church | school | hospital |
    museum | airport | market | mountain | volcano | desert | river | ocean | planet | star | galaxy | black hole |
    atom | molecule | magnet | battery | engine | compiler | database | server | browser | tensor | matrix | vector |
    function | variable | algorithm | neural network | transistor | virus | vaccine | muscle | brain | heart |
    stomach | kidney | bone | egg | pizza | burger | soup | salad | noodle | curry | sausage | pancake | omelette |
    lasagna | coffee | tea | beer | juice | sugar | pepper | salt | guitar | trumpet | flute | ballet | opera |
    painting | novel | poem | film | movie | song | dragonfly | lawyer | judge | plumber | dentist | nurse |
    scientist | engineer | programmer | soldier | president | bank | stock | bond | tax | loan | mortgage | contract |
    passport | visa | election | war | peace | parliament | king | crown | sword | helmet"""
)
_SUBJECTS = phrases(
    """physics | chemistry | biology | history | philosophy | economics | music | art | football | tennis | chess |
    poker | cooking | gardening | marketing | politics | religion | psychology | astronomy | geometry | algebra |
    calculus | statistics | grammar | Python | Java | Rust | C++ | JavaScript | SQL | Linux | Windows | HTML |
    Docker | Git | gravity | electricity | magnetism | evolution | photosynthesis | democracy | inflation |
    capitalism | love | happiness | death | time | space | truth | justice | freedom | friendship | money | success |
    health | sleep | stress | diabetes | cancer | fever | yoga | meditation | climate | weather | blockchain |
    bitcoin | quantum mechanics | relativity | machine learning | artificial intelligence | climate change |
    the Roman Empire | the French Revolution | the Second World War | the stock market | the human body |
    the solar system | the internet | world history | the speed of light | the theory of evolution |
    the meaning of life | the future | the news | the weather"""
)
_PEOPLE = phrases(
    """Napoleon | Caesar | Cleopatra | Plato | Aristotle | Socrates | Mozart | Beethoven | Bach | Picasso | Rembrandt |
    Michelangelo | Einstein | Newton | Darwin | Galileo | Gandhi | Churchill | Lincoln | Washington | Columbus |
    Magellan | Goethe | Dante | Homer | Tolstoy | Dickens | Austen | Orwell | Tolkien | Batman | Superman | Zeus |
    Elvis | Madonna | Messi | Marie Curie | Ada Lovelace | Alan Turing | Isaac Newton | Vincent van Gogh |
    Martin Luther | Nikola Tesla | the president of France | the king of Spain | the pope | your mother |
    your creator | the queen of England"""
)
_WORKS = phrases(
    """Romeo and Juliet | Faust | the Odyssey | Moby Dick | the Bible | Harry Potter | the Mona Lisa | Macbeth |
    the Moonlight Sonata | Star Wars | Don Quixote | Frankenstein | War and Peace | the Iliad | Yesterday |
    the light bulb | the telephone | the wheel | the printing press | penicillin | gunpowder | the radio"""
)
_TASKS = phrases(
    """bake a pie | cook rice | make pancakes | fry an onion | make coffee | make tea | boil potatoes |
    roast a chicken | tie a tie | fix a bike | change a tyre | lose weight | learn French | learn to code |
    get a job | buy a house | save money | find a friend | fall asleep | grow tomatoes | clean a window |
    wash a shirt | train a dog | open a jar | read a map | write a letter | install Linux | sort a list |
    open a file | reverse a string | read a CSV file | parse JSON | use a loop | install a package | undo a commit |
    delete a folder | send an email | build a website | draw a horse | play chess | play the guitar | stop smoking |
    run a marathon | make money | get rich | travel to Japan | get to the station | renew a passport |
    paint a wall | build a shelf"""
)
_VERBS_OF_WORKS = phrases(
    """wrote | invented | painted | discovered | composed | directed | published | made | built"""
)
_FRAMES = phrases(
    """What is {thing}? | What is {subject}? | What are {thing_}s? | What is {the_thing}? | Who is {person}? |
    Who was {person}? | Who {verb} {work}? | When was {person} born? | Where was {person} born? |
    When did {person} die? | Where is {place}? | How big is {place}? | How many people live in {place}? |
    What is {place} known for? | How do I get to {place}? | What is the population of {place}? |
    What language do they speak in {place}? | What is the largest city in {place}? | Tell me about {place}. |
    What should I see in {place}? | What is the weather like in {place}? | What time is it in {place}? |
    How far is it to {place}? | How far is {place} from {place2}? | Who rules {place}? | Plan a trip to {place}. |
    What currency does {place} use? | How do I {task}? | How do I {task}? | How can I {task}? | How do you {task}? |
    How to {task}? | What is the best way to {task}? | Can you help me {task}? | Can you {task}? |
    Teach me how to {task}. | Should I {task}? | Why should I {task}? | How long does it take to {task}? |
    Give me tips to {task}. | What do I need to {task}? | Show me how to {task}. | Explain how to {task}. |
    I want to {task}. | Tell me about {subject}. | Tell me about {thing}. | Tell me something about {subject}. |
    Explain {subject}. | Explain {subject} to a child. | Can you explain {subject}? |
    What do you think about {subject}? | What does {subject} mean? | How does {subject} work? |
    How does {thing} work? | Why is {subject} important? | What causes {subject}? | Define {subject}. |
    Summarize {subject}. | Give me an overview of {subject}. | Who invented {thing}? | When was {work} made? |
    How much does {thing} cost? | How much does {thing} weigh? | How heavy is {thing}? | How fast is {thing}? |
    How old is {person}? | How tall is {person}? | How old is {place}? | How long does {thing} live? |
    How do I use {thing}? | How do I fix {thing}? | What is {thing} used for? | Where can I buy {thing}? |
    Which {thing_} is the best? | What is the best {thing_}? | Why do people like {subject}? |
    What is the difference between {thing} and {thing2}? | Is {thing} better than {thing2}? |
    Compare {thing} and {thing2}. | What is your favourite {thing_}? | Do you like {subject}? | Do you have {thing}? |
    Have you ever seen {thing}? | Write an essay about {subject}. | Write a poem about {subject}. |
    Write a song about {thing}. | Write a report on {subject}. | Write a letter to {person}. |
    Write an email about {subject}. | Write code for {thing}. | Write a program that can {task}. |
    Write a script to {task}. | Write a {lang} function to {task}. | Write a {lang} program for {subject}. |
    How do I {task} in {lang}? | What is {lang}? | Fix this {lang} code. | Is {lang} faster than {lang2}? |
    Why does my {lang} code fail? | Translate {thing_} into {tongue}. | How do you say {thing_} in {tongue}? |
    Say {thing_} in {tongue}. | Translate this sentence into {tongue}. | Do you speak {tongue}? |
    What does {made} mean? | What is {made}? | What is a {made}? | Who is {Made}? | Where is {Made}? |
    What colour is a {made}? | What does a {made} eat? | Why is {thing} so {adjective}? |
    Why is {subject} so {adjective}? | Why are {thing_}s {adjective}? | Is {thing} {adjective}? |
    Is {subject} {adjective}? | Is {place} {adjective}? | Can {thing} fly? | Can {thing} swim? | Does {thing} sleep? |
    What does {thing} eat? | What does {thing} look like? | How many {thing_}s are there? |
    How many {thing_}s are in {place}? | How many {thing_}s does {thing2} have? | Who won the {event}? |
    When is the {event}? | What happened in {year}? | Who was president in {year}? | What happened at the {event}? |
    Recommend a {thing_}. | Give me a recipe for {thing_}. | Draw {thing}. | What will happen in {year}? |
    Will it rain tomorrow? | What time is it? | What is the date today? | What day is it? | What year is it? |
    Where am I? | How old am I? | What did I eat today? | What is my phone number? | Why? | Really? | Who? | How? |
    When? | Where? | What? | {made} | {made} {made} | {thing_} | {subject} | {person} | What are you thinking? |
    Do you love me? | Are you alive? | Do you sleep? | How big are you? | Where are you? | What model is this? |
    Give me advice. | I am bored. | I am sad. | Say something funny. | Sing a song. | Summarize this text. |
    Correct this sentence. | Rewrite this paragraph. | Make a table. | Make a plan. |
    What is the answer to everything? | Is there a god? | What is the tallest mountain in the world? |
    What is the longest river? | What is the largest country? | What is the highest building? | What is pi? |
    How many days are in a year? | How many hours are in a day? | How many planets are there? |
    What is the biggest animal? | Which animal is the fastest? | What is the smallest country? |
    How many metres are in a mile? | How many grams are in a pound? | Convert {number} miles to kilometres. |
    What is {number} dollars in euros? | Roll a die. | Flip a coin. | Give me a random number. | Guess a number. |
    Which is better, {subject} or {subject2}? | Why do we need {subject}? | What comes after {subject}? |
    How do {thing_}s work? | Where do {thing_}s come from? | What are {thing_}s made of? | Who owns {place}? |
    Who is the president of {place}? | Who is the king of {place}? | What is the capital of {thing_}? |
    Is it true that {subject} is {adjective}? | What happens if I {task}? | When should I {task}? |
    I need help with {subject}. | Can you recommend a {thing_}? | Give me three ideas about {subject}. |
    List the causes of {subject}. | What are the rules of {subject}? | Name a famous {thing_}. |
    Who is the best {thing_}? | Is {place} a {thing_}? | Is {Made} a {thing_}? | Are {thing_}s {adjective}? |
    Can {thing_}s sleep? | Are there {thing_}s in {place}? | What is in {thing}? | Is there {thing} in {place}?"""
)
_ADJECTIVES = phrases(
    """good | bad | big | small | expensive | cheap | dangerous | safe | healthy | old | new | hard | easy | famous |
    green | blue | hot | cold"""
)
_LANGS = phrases("""Python | Java | Rust | C++ | JavaScript | SQL | Bash | Go | C | Haskell | Ruby""")
_TONGUES = phrases(
    """French | German | Spanish | Italian | Latin | Japanese | Chinese | Russian | Greek | Dutch | Polish | Arabic |
    Swedish"""
)
_EVENTS = phrases(
    """World Cup | election | Olympics | war | Super Bowl | Battle of Waterloo | gold rush | next full moon"""
)


def _known(kind: Kind) -> set[str]:
    return {bare(value) for row in kind.rows for key, value in row.items() if key in "xy"}


_KNOWN = {kind.name: _known(kind) for kind in KINDS}
_ANYTHING = sorted({bare(row["x"]) for kind in KINDS for row in kind.rows} | set(_THINGS))


def draw(rng: random.Random) -> Question:
    """A question that the model has to turn down."""
    text = _near(rng) if rng.random() < 0.35 else _frame(rng)
    return Question(text, REPLY, "I do not know.", "Unknown.")


def topic(rng: random.Random) -> str:
    """Return a thing that no story is about."""
    return rng.choice([*_SUBJECTS, *_PLACES, *map(a, _THINGS)])


def _near(rng: random.Random) -> str:
    """A fact's phrasing about what its table lacks: another table's entries, other things, made-up words."""
    kind = rng.choice(KINDS)
    draw = rng.random()
    if draw < 0.25:
        x = made_up_word(rng)
        x = x.capitalize() if kind.name in ("capital", "capital-of", "continent") else x
    elif kind.name in ("capital", "capital-of", "continent") and draw < 0.75:
        x = rng.choice(_PLACES)
    else:
        x = rng.choice([one for one in _ANYTHING if one not in _KNOWN[kind.name]])
    if kind.name == "colour" and rng.random() < 0.8:
        x = a(x)
    row = {"x": x, "y": x, "an": a(x), "any": a(x), "c": x, "n": x, "xs": many(x)}
    return sentence(rng.choice(kind.ask).format(**row))


def _frame(rng: random.Random) -> str:
    """One of the frames, with whatever it asks for filled in."""
    thing, thing2 = rng.sample(_THINGS, 2)
    subject, subject2 = rng.sample(_SUBJECTS, 2)
    place, place2 = rng.sample(_PLACES, 2)
    lang, lang2 = rng.sample(_LANGS, 2)
    made = made_up_word(rng)
    if rng.random() < 0.12:
        thing, place, subject = made, made.capitalize(), made
    person = rng.choice(_PEOPLE)
    if rng.random() < 0.25:
        person = f"{rng.choice(GIRLS + BOYS)} {made_up_word(rng).capitalize()}"
    filled = rng.choice(_FRAMES).format(
        thing=a(thing),
        thing_=thing,
        the_thing=f"the {thing}",
        thing2=a(thing2),
        subject=subject,
        subject2=subject2,
        place=place,
        place2=place2,
        person=person,
        verb=rng.choice(_VERBS_OF_WORKS),
        work=rng.choice(_WORKS),
        task=rng.choice(_TASKS),
        lang=lang,
        lang2=lang2,
        tongue=rng.choice(_TONGUES),
        made=made,
        Made=made.capitalize(),
        adjective=rng.choice(_ADJECTIVES),
        event=rng.choice(_EVENTS),
        year=rng.randint(1200, 2090),
        number=rng.randint(2, 5000),
    )
    return sentence(filled)
