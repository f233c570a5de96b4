"""A grammar for short stories of a simple world.

Each plot is a function that takes a :class:`World` and returns the sentences of one story. The world keeps
what has been settled (who the hero is, which pronouns fit), so that a story never contradicts itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .facts import a, sentence
from .world import ANIMALS, BOYS, COLOURS, FEELINGS, FOODS, GIRLS, PLACES, TOYS, World, the


def _lost(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    toy = f"{w.pick(COLOURS)} {w.pick(TOYS)}"
    short, place = toy.split()[1], w.pick(PLACES)
    spot = w.pick("under a big tree|behind a rock|in the tall grass|under a bench|in a bush|next to a small flower")
    return [
        *w.opening(),
        f"{hero.name} had {a(toy)} and took it everywhere.",
        f"{w.one_day()}, {hero.name} could not find the {short}.",
        w.pick(f"{hero.Subj} felt very sad.", f"{hero.Subj} started to cry.", f"{hero.Subj} was worried."),
        f"{hero.Subj} looked "
        f"{w.pick('under the bed|in the kitchen|behind the door|in the box')}, but it was not there.",
        f"Then {hero.poss} friend {friend.full} came by.",
        f'"{w.pick("Why are you sad", "What is wrong", "What happened")}?" asked {friend.name}.',
        f'"I lost my {toy}," said {hero.name}.',
        w.pick(f'"I will help you," said {friend.name}.', f'"Let us look for it together," said {friend.name}.'),
        f"They went to the {place} and looked everywhere.",
        f"At last, {friend.name} saw the {short} {spot}.",
        w.pick(f'"Here it is!" said {friend.name}.', f'"I found it!" said {friend.name}.'),
        f'"Thank you, {friend.name}!" said {hero.name}.',
        *w.ending(f"{hero.name} and {friend.name} played with the {short} until the sun went down."),
    ]


def _share(w: World) -> list[str]:
    hero, friend, food = w.hero, w.being(), w.pick(FOODS)
    thing = "the " + food.split(" ", 1)[1]
    place = w.pick(PLACES)
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.poss} {w.pick('mother|father|grandmother|grandfather')} gave {hero.obj} {food}.",
        f"{hero.name} took it to the {place} to eat it there.",
        *w.weather(),
        f"On the way, {hero.subj} met {a(friend.what)} named {friend.name}.",
        w.pick(f"{friend.name} looked hungry.", f"{friend.name} looked tired and hungry."),
        f'"I have not eaten all day," said {friend.name}.',
        w.pick(f"{hero.name} thought for a moment.", f"{hero.name} felt sorry for {friend.obj}."),
        f'Then {hero.subj} said, "{w.pick("You can have half of mine", "Let us share", "We can eat together")}."',
        f"They sat down {w.pick('under a tree|on the grass|on a bench|by the water')} and shared {thing}.",
        w.pick(f'"This is so good," said {friend.name}.', f'"You are very kind," said {friend.name}.'),
        w.pick(
            "After that, they played together.",
            "Then they ran and laughed.",
            "Then they told each other stories.",
        ),
        *w.ending(
            f"From that day on, {hero.name} and {friend.name} were best friends.",
            f"{hero.name} learned that sharing makes food taste better.",
            f"{hero.Subj} went home with a big smile.",
        ),
    ]


def _rain(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    place, shelter = (
        w.pick(PLACES),
        w.pick("under a big tree|in an old barn|under a bridge|in a small cave|in a hut"),
    )
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.name} went to the {place} with {hero.poss} friend {friend.full}.",
        *w.weather(),
        w.pick("They played and ran in the grass.", "They picked flowers and sang.", "They jumped and laughed."),
        w.pick("Suddenly, the sky became dark.", "Then a big grey cloud came.", "Then they heard loud thunder."),
        w.pick("It began to rain.", "Soon it was raining hard.", "Big drops of rain began to fall."),
        f'"{w.pick("We are getting wet", "We must find a dry place", "Run")}!" said {friend.name}.',
        f"They ran and hid {shelter}.",
        w.pick(f"{hero.name} was a little afraid.", f"{friend.name} was cold.", "They sat close together."),
        f'"{w.pick("The rain will stop soon", "Do not worry", "We are safe here")}," said {hero.name}.',
        w.pick("After a while, the rain stopped.", "Soon the sun came out again.", "At last, the rain went away."),
        w.pick(
            "They looked up and saw a rainbow in the sky.",
            "A big rainbow stood over the fields.",
            "The grass was wet and everything smelled fresh.",
        ),
        w.pick(f'"How beautiful!" said {friend.name}.', f'"Look at that!" said {hero.name}.'),
        *w.ending("They walked home and jumped in every puddle."),
    ]


def _rescue(w: World) -> list[str]:
    hero = w.hero
    lost = w.being(w.pick(*[animal for animal in ("kitten", "puppy", "bird", "duckling") if animal != hero.what]))
    trap = w.pick("in a deep hole|in a tall tree|in a bush|on a high wall|under a fallen branch")
    tool = w.pick("rope|ladder|long stick|basket")
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.name} was walking in the {w.pick(PLACES)}.",
        *w.weather(),
        w.pick(f"{hero.Subj} heard a small sound.", f"Then {hero.subj} heard someone cry."),
        f"It was a little {lost.what}. The little {lost.what} was stuck {trap}.",
        f'"{w.pick("Help me", "Please help me")}!" said the {lost.what}.',
        f'"{w.pick("Do not be afraid", "Wait here", "I will help you")}," said {hero.name}.',
        f"{hero.Subj} ran home and came back with a {tool}.",
        w.pick(f"{hero.name} worked slowly and carefully.", "It was hard, but it worked."),
        f"Soon the {lost.what} was safe.",
        f'"Thank you! My name is {lost.name}," said the {lost.what}.',
        w.pick(
            f"{hero.name} gave {lost.obj} some water.",
            f"{hero.name} took {lost.obj} home to {lost.poss} mother.",
        ),
        *w.ending(
            f"After that, {hero.name} and {lost.name} were good friends.",
            f"Everyone was proud of {hero.name}.",
            f"{hero.Subj} went home with a big smile.",
        ),
    ]


def _learn(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    skill = w.pick("swim|sing|dance|paint|whistle|cook|ride a bike|climb a tree|bake bread|play the drum")
    return [
        *w.opening(),
        f"{hero.name} wanted to learn how to {skill}.",
        f"{w.one_day()}, {hero.subj} tried, but it was too hard.",
        w.pick(f"{hero.Subj} felt sad.", f"{hero.Subj} wanted to give up.", f"{hero.Subj} sat down and cried."),
        f"{friend.full} saw {hero.obj} and came over.",
        f'"{w.pick("What is wrong", "Can I help you", "Why are you sad")}?" asked {friend.name}.',
        f'"I cannot {skill}," said {hero.name}.',
        f'"{w.pick("I can show you", "Let us try together", "You only have to try again")}," said {friend.name}.',
        w.pick("Every day, they practised together.", "They practised all week.", "They tried again and again."),
        w.pick(f"At first, {hero.name} made many mistakes.", "Some days were hard."),
        f"But {hero.subj} did not give up.",
        f"{w.pick('At last', 'Then one day', 'In the end')}, {hero.name} could {skill}.",
        w.pick(f'"You did it!" said {friend.name}.', f'"Look at me!" said {hero.name}.'),
        *w.ending(
            f"{hero.name} was proud and thanked {friend.name}.",
            f"{hero.name} learned that it is good to try again.",
        ),
    ]


def _plant(w: World) -> list[str]:
    hero = w.hero
    helper = w.pick("mother|father|grandmother|grandfather")
    grown, colour = w.pick("flower|tree|rose|sunflower"), w.pick(COLOURS)
    result = f"{a(colour)} {grown}" if grown in ("flower", "rose") else f"a tall {grown}"
    return [
        *w.opening(),
        f"In spring, {hero.poss} {helper} gave {hero.obj} a small seed.",
        f'"{w.pick("What is it", "What can I do with it")}?" asked {hero.name}.',
        f'"{w.pick("Plant it and wait", "Put it in the ground and give it water")}," said {hero.poss} {helper}.',
        f"{hero.name} made a hole in the garden and put the seed in it.",
        w.pick(f"Every day, {hero.subj} gave it water.", f"Every morning, {hero.subj} came to look at it."),
        w.pick("For many days, nothing happened.", "The days went by, but nothing came up."),
        f'"{w.pick("Maybe it is asleep", "You have to wait", "Good things take time")}," said {hero.poss} {helper}.',
        w.pick("Then it rained for a day.", "Then the sun was warm for a week."),
        f"One morning, {hero.name} saw {w.pick('a small green leaf|something green')} in the garden.",
        f"It grew and grew, and in summer it was {result}.",
        w.pick(f'"It is beautiful!" said {hero.name}.', f"{hero.name} danced around it."),
        *w.ending(f"{hero.name} learned to wait.", f"{hero.name} showed it to all {hero.poss} friends."),
    ]


def _gift(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    gift = f"{w.pick(COLOURS)} {w.pick('scarf|hat|kite|boat|basket|drum|lantern')}"
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.name} heard that it was the birthday of {hero.poss} friend {friend.full}.",
        f'"I want to make a gift," {hero.subj} thought.',
        w.pick(f"But {hero.subj} had no money.", f"{hero.Subj} did not know what to make."),
        f"{hero.Subj} asked {hero.poss} {w.pick('mother|father|grandmother|brother|sister')} for help.",
        f"Together they made {a(gift)}.",
        w.pick("It took the whole morning.", "It was a lot of work.", "They worked and sang."),
        f"Then {hero.name} went to the house of {friend.name}.",
        f'"Happy birthday, {friend.name}!" said {hero.name}.',
        w.pick(f"{friend.name} opened the box and smiled.", f"{friend.name} jumped with joy."),
        f'"{sentence(a(gift))}! {w.pick("It is just what I wanted", "I love it")}," said {friend.name}.',
        w.pick("Then they ate cake.", "They sang songs and ate cake.", "They played games all afternoon."),
        *w.ending(f"{hero.name} learned that giving is fun."),
    ]


def _hide(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    place = w.pick(PLACES)
    spot = w.pick("behind a big tree|in a basket|under a bench|behind a wall|under the leaves|inside an old barrel")
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.name} and {hero.poss} friend {friend.full} played in the {place}.",
        *w.weather(),
        f'"Let us play hide and seek," said {friend.name}.',
        f"{hero.name} closed {hero.poss} eyes and counted to {w.pick('ten|twenty')}.",
        f"{friend.name} hid {spot}.",
        f"{hero.name} looked {w.pick('left and right|up and down|here and there')}, but {hero.subj} saw nobody.",
        w.pick(f'"Where are you?" asked {hero.name}.', f'"You are good at this!" said {hero.name}.'),
        w.pick(f"Then {hero.subj} heard a laugh.", f"Then {friend.name} had to sneeze.", "Then something moved."),
        f"{hero.name} looked {the(spot)}.",
        f'"I found you!" said {hero.name}.',
        f'"{w.pick("Now it is my turn", "You are very clever", "That was fun")}," said {friend.name}.',
        w.pick("They played again and again.", "They played until it was dark."),
        *w.ending(f"Then {hero.name} and {friend.name} went home for dinner."),
    ]


def _night(w: World) -> list[str]:
    hero = w.hero
    noise, source = w.pick(
        "a strange sound/only the wind in the trees|a tap on the window/only a branch|"
        "a soft voice/an owl in the tree|a small noise/a little mouse"
    ).split("/")
    parent = w.pick("mother|father|grandmother|grandfather")
    return [
        *w.opening(),
        f"One night, {hero.name} could not sleep.",
        w.pick("The room was dark.", "It was very late.", "The moon was high in the sky."),
        f"Then {hero.subj} heard {noise}.",
        w.pick(f"{hero.name} was afraid.", f"{hero.name} hid under the blanket."),
        f"{hero.Subj} called {hero.poss} {parent}.",
        f'"What is it?" asked {hero.poss} {parent}.',
        f'"I heard {noise}," said {hero.name}.',
        w.pick("They took a lamp and looked outside.", "They opened the window together."),
        f"It was {source}.",
        f'{hero.name} laughed. "{w.pick("Now I am not afraid", "That is not scary at all")}," {hero.subj} said.',
        f"{hero.poss.capitalize()} {parent} {w.pick('sang a soft song|told a short story|sat by the bed')}.",
        w.pick(f"Soon {hero.name} was asleep.", f"{hero.name} closed {hero.poss} eyes and dreamed of the stars."),
    ]


def _trip(w: World) -> list[str]:
    hero = w.hero
    elder = w.pick("grandmother|grandfather|mother|father|aunt|uncle")
    vehicle, goal = (
        w.pick("train|bus|boat|old car"),
        w.pick("the sea|the mountains|the city|a farm|an island"),
    )
    seen = w.pick("a horse|a cow|a big ship|a white swan|a tall tower|a red windmill|an old castle")
    found = w.pick("a shell|a smooth stone|a feather|a coin|a small flower")
    return [
        *w.opening(),
        f'{w.one_day()}, {hero.poss} {elder} said, "Today we will go to {goal}."',
        f"{hero.name} {w.pick('was very excited|jumped with joy|packed a small bag')}.",
        f"They went by {vehicle}.",
        f"On the way, they saw {seen}.",
        w.pick(f'"Look!" said {hero.name}.', f'"How wonderful!" said {hero.name}.'),
        f"When they came to {the(goal)}, they {w.pick('ate lunch|took a long walk|sat down and rested')}.",
        f"{hero.name} found {found} and put it in {hero.poss} pocket.",
        f'"{w.pick("Are you tired", "Do you like it here", "Are you happy")}?" asked {hero.poss} {elder}.',
        f'"{w.pick("I want to stay here forever", "This is a lovely day", "I want to come back soon")}'
        f'," said {hero.name}.',
        w.pick("In the evening, they went home.", "When the sun went down, they went home."),
        *w.ending(f"{hero.name} kept {the(found)} next to {hero.poss} bed."),
    ]


_PLOTS: tuple[Callable[[World], list[str]], ...] = (
    _lost, _share, _rain, _rescue, _learn, _plant, _gift, _hide, _night, _trip,
)  # fmt: skip


def story(rng: random.Random, what: str | None = None, name: str | None = None) -> str:
    """One story, of a hero of this kind and name where they are given."""
    world = World(rng, what, name)
    return " ".join(rng.choice(_PLOTS)(world))


def introduction(rng: random.Random) -> str:
    """Somebody tells who they are, in the first person."""
    world = World(rng)
    me, friend = world.hero, world.being()
    greeting = world.pick("Hello, my name is", "Hello! My name is", "Hi, my name is", "My name is")
    who = world.pick(
        f"I am {world.pick('five|six|seven|eight|nine|ten')} years old.",
        f"I am a {world.pick('little|small|young')} {me.what}.",
    )
    sentences = [
        f"{greeting} {me.name}.",
        who,
        f"I live in a {world.home()} with my {world.pick('mother|father|family|grandmother')}.",
        f"I like to {world.pick('play|sing|run|read|dance|swim')} in the {world.pick(PLACES)}.",
        f"My best friend is {a(friend.what)} named {friend.name}.",
        f"{friend.Subj} is very {world.pick(FEELINGS)}.",
        f"Today we will {world.pick('play hide and seek|bake bread|go to the park|read a book|plant a tree')}.",
    ]
    return " ".join(sentences)


def request(rng: random.Random) -> tuple[str, str | None, str | None]:
    """A hero to ask a story about, in words, with the kind and the name to give to :func:`story`."""
    name = rng.choice(GIRLS + BOYS)
    child = "girl" if name in GIRLS else "boy"
    animal = rng.choice(ANIMALS)
    return rng.choice(
        [
            (a(animal), animal, None),
            (name, None, name),
            (f"a {child}", child, None),
            (f"a {child} named {name}", child, name),
            (f"{a(animal)} named {name}", animal, name),
        ]
    )
