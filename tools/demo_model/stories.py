"""A grammar for short stories of a simple world.

Each plot is a function that takes a :class:`World` and returns the sentences of one story. The world keeps
what has been settled (who the hero is, which pronouns fit), so that a story never contradicts itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .facts import a, phrases, sentence, words
from .world import (
    COLOURS,
    FEELINGS,
    FOODS,
    PET_NAMES,
    PLACES,
    TOYS,
    World,
    described,
    the,
)


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
        *w.ending(f"{hero.name} and {friend.name} played together until the sun went down."),
    ]


def _share(w: World) -> list[str]:
    hero, friend, food = w.hero, w.being(), w.pick(FOODS)
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.poss} {w.pick('mother|father|grandmother|grandfather')} gave {hero.obj} {food}.",
        f"{hero.name} set off for the {w.pick(PLACES)} to eat it there.",
        *w.weather(),
        f"On the way, {hero.subj} met {described(friend)}.",
        w.pick(f"{friend.name} looked hungry.", f"{friend.name} looked tired and hungry."),
        f'"I have not eaten all day," said {friend.name}.',
        w.pick(f"{hero.name} thought for a moment.", f"{hero.name} felt sorry for {friend.obj}."),
        f'Then {hero.subj} said, "{w.pick("You can have half of mine", "Let us share", "We can eat together")}."',
        f"They sat down {w.pick('under a tree|on the grass|on a bench|by the water')} and shared {the(food)}.",
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
    shelter = w.pick("under a bridge|in a hut|in an old shed")
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.name} went to the {w.pick('park|forest|meadow|field')} "
        f"with {hero.poss} friend {friend.full}.",
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
            "A big rainbow stretched across the sky.",
            "The grass was wet and everything smelled fresh.",
        ),
        w.pick(f'"How beautiful!" said {friend.name}.', f'"Look at that!" said {hero.name}.'),
        *w.ending("They walked home and jumped in every puddle."),
    ]


_TRAPS = phrases(
    """kitten/in a tall tree/ladder | kitten/on a high wall/ladder | kitten/in a deep hole/rope |
    puppy/in a deep hole/rope | puppy/under a fallen branch/saw | puppy/in a bush/long stick |
    duckling/in a deep hole/basket | duckling/under a fallen branch/saw | duckling/in a bush/long stick |
    chick/in a deep hole/basket | chick/in a bush/long stick"""
)
"""A young animal, where it is stuck and what gets it out."""


def _rescue(w: World) -> list[str]:
    hero = w.hero
    young, trap, tool = w.rng.choice(_TRAPS).split("/")
    lost = w.being(young)
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.name} was walking in the {w.pick(PLACES)}.",
        *w.weather(),
        w.pick(f"Suddenly, {hero.subj} heard a sound.", f"Then {hero.subj} heard someone crying."),
        f"It was a little {lost.what}. The {lost.what} was stuck {trap}.",
        f'"{w.pick("Help me", "Please help me")}!" said the {lost.what}.',
        f'"{w.pick("Do not be afraid", "Wait here", "I will help you")}," said {hero.name}.',
        f"{hero.Subj} ran home and came back with a {tool}.",
        w.pick(f"{hero.name} worked slowly and carefully.", "It was hard, but it worked."),
        f"Soon the {lost.what} was safe.",
        f'"Thank you! My name is {lost.name}," said the {lost.what}.',
        w.pick(
            f"{hero.name} gave {lost.obj} some water.",
            f"{hero.name} took {lost.name} home.",
        ),
        *w.ending(
            f"After that, {hero.name} and {lost.name} were good friends.",
            f"Everyone was proud of {hero.name}.",
            f"{hero.Subj} went home with a big smile.",
        ),
    ]


_SKILLS = "swim|sing|dance|paint|whistle|cook|ride a bike|climb a tree|bake bread|play the drum"
_BORN_WITH = {
    "swim": words("duck frog penguin turtle"),
    "sing": words("bird"),
    "climb a tree": words("cat squirrel monkey bear bird owl"),
}
"""Who need not learn it."""


def _learn(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    skill = w.pick("|".join(s for s in _SKILLS.split("|") if hero.what not in _BORN_WITH.get(s, ())))
    return [
        *w.opening(),
        f"{hero.name} wanted to learn how to {skill}.",
        f"{w.one_day()}, {hero.subj} tried, but it was too hard.",
        w.pick(f"{hero.Subj} felt sad.", f"{hero.Subj} wanted to give up.", f"{hero.Subj} sat down and cried."),
        f"{hero.Poss} friend {friend.full} saw {hero.obj} and came over.",
        f'"{w.pick("What is wrong", "Can I help you", "Why are you sad")}?" asked {friend.name}.',
        f'"I cannot {skill}," said {hero.name}.',
        f'"{w.pick("I can show you", "Let us try together", "You just have to keep trying")}," said {friend.name}.',
        w.pick("Every day, they practised together.", "They practised all week.", "They tried again and again."),
        w.pick(f"At first, {hero.name} made many mistakes.", "Some days were hard."),
        f"But {hero.subj} did not give up.",
        f"{w.pick('At last', 'Then one day', 'In the end')}, {hero.name} could {skill}.",
        w.pick(f'"You did it!" said {friend.name}.', f'"Look at me!" said {hero.name}.'),
        *w.ending(
            f"{hero.name} was proud and thanked {friend.name}.",
            f"{hero.name} had learned to keep trying.",
            days=True,
        ),
    ]


def _plant(w: World) -> list[str]:
    hero = w.hero
    helper = w.pick("mother|father|grandmother|grandfather")
    grown = w.pick("flower|rose|tulip|sunflower")
    result = "a tall sunflower" if grown == "sunflower" else f"{a(w.pick('red|yellow|white|pink|orange'))} {grown}"
    return [
        *w.opening(timeless=True),
        f"In spring, {hero.poss} {helper} gave {hero.obj} a small seed.",
        f'"{w.pick("What is it", "What can I do with it")}?" asked {hero.name}.',
        f'"{w.pick("Plant it and wait", "Put it in the ground and give it water")}," said {hero.poss} {helper}.',
        f"{hero.name} made a hole in the ground and put the seed in it.",
        w.pick(f"Every day, {hero.subj} gave it water.", f"Every morning, {hero.subj} came to look at it."),
        w.pick("For many days, nothing happened.", "The days went by, but nothing came up."),
        f'"{w.pick("Maybe it is asleep", "You have to wait", "Good things take time")}," said {hero.poss} {helper}.',
        w.pick("Then it rained for a day.", "Then the sun shone for a week."),
        f"One morning, {hero.name} saw {w.pick('a small green leaf|something green')} in the garden.",
        f"It grew and grew, and in summer it was {result}.",
        w.pick(f'"It is beautiful!" said {hero.name}.', f"{hero.name} danced around it."),
        *w.ending(
            f"{hero.name} had learned to wait.",
            f"{hero.name} showed it to all {hero.poss} friends.",
            days=True,
        ),
    ]


def _gift(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    gift = f"{w.pick(COLOURS)} {w.pick('scarf|hat|kite|boat|basket|drum|lantern')}"
    return [
        *w.opening(),
        f"{hero.Poss} best friend was {friend.full}.",
        f"{w.one_day()}, it was {friend.name}'s birthday.",
        f'"I want to make a present," {hero.name} thought.',
        w.pick(f"But {hero.subj} did not know what to make.", f"But {hero.subj} had never made one before."),
        f"{hero.Subj} asked {hero.poss} {w.pick('mother|father|grandmother|brother|sister')} for help.",
        f"Together they made {a(gift)}.",
        w.pick("It took the whole morning.", "It was a lot of work.", "They sang while they worked."),
        f"Then {hero.name} went to {friend.name}'s house.",
        f'"Happy birthday, {friend.name}!" said {hero.name}.',
        w.pick(f"{friend.name} opened the present and smiled.", f"{friend.name} jumped for joy."),
        f'"{sentence(a(gift))}! {w.pick("It is just what I wanted", "I love it")}," said {friend.name}.',
        w.pick("Then they ate cake.", "They sang songs and ate cake.", "They played games all afternoon."),
        *w.ending(f"{hero.name} had learned that giving is fun."),
    ]


def _hide(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    spot = w.pick("behind a big tree|in a basket|under a bench|behind a wall|under the leaves|inside an old barrel")
    return [
        *w.opening(),
        f"{w.one_day()}, {hero.name} and {hero.poss} friend {friend.full} played in the {w.pick(PLACES)}.",
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


_NOISES = (
    ("a strange sound", "only the wind in the trees"),
    ("a tap on the window", "only a branch"),
    ("a soft voice", "an owl in the tree"),
    ("a small noise", "a little mouse"),
)


def _night(w: World) -> list[str]:
    hero = w.hero
    noise, source = w.rng.choice([pair for pair in _NOISES if hero.what not in words(pair[1])])
    parent = w.pick("mother|father|grandmother|grandfather")
    return [
        *w.opening(timeless=True),
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
        f"{hero.Poss} {parent} {w.pick('sang a soft song|told a short story|sat by the bed')}.",
        w.pick(f"Soon {hero.name} was asleep.", f"{hero.name} closed {hero.poss} eyes and dreamed of the stars."),
    ]


_TRIPS = (
    ("the sea", "train|bus|car", "a big ship|a red windmill|an old castle", "a shell|a smooth stone"),
    ("the mountains", "train|bus|car", "a horse|a cow|a tall tower|an old castle", "a feather|a smooth stone"),
    ("the city", "train|bus|car", "a horse|a cow|a red windmill|a tall tower", "a coin|a feather"),
    ("a farm", "train|bus|car", "a tall tower|a red windmill|an old castle", "a feather|a small flower"),
    ("an island", "boat|ship", "a whale|a big ship|a white swan", "a shell|a smooth stone"),
)
"""Where to, how, what is seen on the way and what is found there."""


def _trip(w: World) -> list[str]:
    hero = w.hero
    elder = w.pick("grandmother|grandfather|mother|father|aunt|uncle")
    goal, vehicles, seen, finds = w.rng.choice(_TRIPS)
    found = w.pick(finds)
    return [
        *w.opening(),
        f'{w.one_day()}, {hero.poss} {elder} said, "Today we will go to {goal}."',
        f"{hero.name} {w.pick('was very excited|jumped for joy|packed a small bag')}.",
        f"They went by {w.pick(vehicles)}.",
        f"On the way, they saw {w.pick(seen)}.",
        w.pick(f'"Look!" said {hero.name}.', f'"How wonderful!" said {hero.name}.'),
        f"When they came to {the(goal)}, they {w.pick('ate lunch|took a long walk|sat down and rested')}.",
        f"{hero.name} found {found} and put it in {hero.poss} bag.",
        f'"{w.pick("Are you tired", "Do you like it here", "Are you happy")}?" asked {hero.poss} {elder}.',
        f'"{w.pick("I want to stay here forever", "This is a lovely day", "I want to come back soon")}'
        f'," said {hero.name}.',
        w.pick("In the evening, they went home.", "When the sun went down, they went home."),
        *w.ending(f"{hero.name} kept {the(found)} next to {hero.poss} bed."),
    ]


def _pet(w: World) -> list[str]:
    hero = w.hero
    pet = w.being(w.pick("dog|cat|rabbit|pony|bird"), w.rng.choice(PET_NAMES))
    size = w.pick("|little |small ")
    return [
        w.pick(
            f"{hero.name} had {a(size + pet.what)} named {pet.name}.",
            f"{hero.name} had {a(size + pet.what)}. Its name was {pet.name}.",
            f"{hero.name} had {a(size + pet.what)} called {pet.name}.",
        ),
        w.pick(
            f"{hero.Subj} loved {pet.name} very much.",
            f"Every day, {hero.name} and {pet.name} played in the {w.pick(PLACES)}.",
        ),
        f"{w.one_day()}, {hero.name} came home, but {pet.name} was not there.",
        f'"{pet.name}, where are you?" called {hero.name}.',
        w.pick(f"{hero.Subj} looked everywhere.", f"{hero.Subj} looked in every room."),
        f"Then {hero.subj} heard a sound {w.pick('under the bed|behind the door|in the big box|in the garden')}.",
        f"It was {pet.name}!",
        w.pick(f"{pet.name} had found {a(w.pick(TOYS))}.", f"{pet.name} had been asleep all day."),
        w.pick(f'"I missed you," said {hero.name}.', f'"You made me worry," said {hero.name}.'),
        *w.ending(f"{hero.name} held {pet.name} close.", f"{hero.name} gave {pet.name} something good to eat."),
    ]


def _snow(w: World) -> list[str]:
    hero, friend = w.hero, w.being()
    nose, eyes = w.pick("a carrot|a small stick|a pine cone"), w.pick("two black stones|two buttons|two nuts")
    return [
        *w.opening(timeless=True),
        f"One winter morning, {hero.name} looked out of the window.",
        w.pick("Everything was white.", "The garden was full of snow.", "It had snowed all night."),
        f"{hero.name} put on a {w.pick('warm scarf|thick coat|woolly hat')} and ran outside.",
        f"{hero.Poss} friend {friend.full} was already there.",
        f'"Let us build a snowman," said {friend.name}.',
        "They made three big balls of snow.",
        f"{hero.name} brought {nose} for the nose.",
        f"{friend.name} brought {eyes} for the eyes.",
        w.pick(f'"He needs a hat," said {hero.name}.', f'"He looks funny," said {friend.name}.'),
        w.pick("They gave him an old hat.", "They put a bucket on his head."),
        f"Then they went inside and drank {w.pick('hot milk|hot chocolate|warm tea')}.",
        *w.ending(f"{hero.name} waved to the snowman from the window."),
    ]


_PLOTS: tuple[Callable[[World], list[str]], ...] = (
    _lost, _share, _rain, _rescue, _learn, _plant, _gift, _hide, _night, _trip, _snow,
)  # fmt: skip


def story(rng: random.Random, what: str | None = None, name: str | None = None) -> str:
    """One story, of a hero of this kind and name where they are given."""
    world = World(rng, what, name)
    return " ".join(rng.choice(_PLOTS)(world))


def pet_story(rng: random.Random) -> str:
    """A story of a child and a pet; it starts with what the child has ("Tim had a little dog ...")."""
    return " ".join(_pet(World(rng, rng.choice(("girl", "boy")))))


def introduction(rng: random.Random) -> str:
    """Return a self-introduction in the first person."""
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
        f"I like to {world.pick('play|sing|run|read|dance')} in the {world.pick(PLACES)}.",
        f"My best friend is {described(friend)}.",
        f"{friend.Subj} is very {world.pick(FEELINGS)}.",
        f"Today we will {world.pick('play hide and seek|bake bread|go to the park|read a book|plant a tree')}.",
    ]
    return " ".join(sentences)
