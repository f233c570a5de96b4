"""Conversations for the shipped model: facts, sums, small talk, refusals and stories on request."""

from __future__ import annotations

import random
from dataclasses import dataclass

from . import facts, lists, stories, styles, sums, unknown, world
from .fact_tables import KINDS
from .facts import Question, phrases

_SMALL_TALK: tuple[tuple[list[str], Question], ...] = (
    (
        phrases("Hello! | Hello | Hi! | Hi | Hi there! | Good morning! | Hey! | Hey | Good evening! | Hello there!"),
        Question("", "Hello! How can I help you?", "Hello!", "Hello!"),
    ),
    (
        phrases("How are you? | How are you today? | Are you well? | How are you doing? | Hello, how are you?"),
        Question("", "I am well, thank you. How can I help you?", "I am well.", "Well."),
    ),
    (
        phrases("Thank you! | Thanks! | Thank you very much! | Thanks a lot! | That is very kind of you. | Thanks"),
        Question("", "You are welcome!", "You are welcome!", "Welcome!"),
    ),
    (
        phrases("Goodbye! | Bye! | See you soon! | Good night! | Bye | See you later!"),
        Question("", "Goodbye! Have a nice day.", "Goodbye!", "Goodbye!"),
    ),
    (
        phrases(
            """Who are you? | What are you? | What is your name? | Tell me about yourself. | Introduce yourself. |
            What model are you? | Which model are you? | Are you ChatGPT? | Who made you?"""
        ),
        Question(
            "", "I am the small demonstration model that comes with pyggml.", "A small demonstration model.", "Model."
        ),
    ),
    (
        phrases(
            """What can you do? | How can you help me? | Can you help me? | What can I ask you? | Help me, please. |
            What do you know? | Help | What are you able to do? | What can you help me with?"""
        ),
        Question(
            "",
            "I can tell short stories, answer simple questions and add small numbers.",
            "Stories, simple questions and sums.",
            "Little.",
        ),
    ),
    (
        phrases("Are you a person? | Are you human? | Are you a real person? | Are you a human being?"),
        Question("", "No, I am a small language model.", "No.", "No."),
    ),
    (
        phrases("Are you an AI? | Are you a language model? | Are you a computer program? | Are you a machine?"),
        Question("", "Yes, I am a small language model.", "Yes.", "Yes."),
    ),
    (
        phrases(
            """Tell me a joke. | Tell me a joke! | Do you know a joke? | Can you tell me a joke? | Make me laugh. |
            Another joke, please."""
        ),
        Question("", "I know no jokes, but I can tell you a story.", "I know no jokes.", "No."),
    ),
    (
        phrases("OK | Okay. | I see. | Good. | Great! | That is right. | Very good! | Nice! | Cool."),
        Question("", "What else can I do for you?", "What else?", "Yes?"),
    ),
)
"""What people say, and the answer to it, whose own text is left empty."""

_REPEAT = ("Repeat: {}", "Say: {}", "Repeat after me: {}", "Please say: {}", "Repeat these words: {}")
_STORY_REQUESTS = (
    "Tell me a story about {hero}.",
    "Tell me a story about {hero}.",
    "Tell me a short story about {hero}.",
    "Write a story about {hero}.",
    "Write a short story about {hero}.",
    "Can you tell me a story about {hero}?",
    "I want to hear a story about {hero}.",
    "Please tell me a story about {hero}.",
    "Tell a story about {hero}.",
    "Tell me a little story about {hero}, please.",
    "A story about {hero}, please.",
)
_ANY_STORY = (
    "Tell me a story.", "Tell me a short story.", "Write a story.", "Can you tell me a story?", "A story, please.",
    "Tell me another story.", "I want to hear a story.", "Write a short story.",
)  # fmt: skip

_TAILS = phrases("Answer. | Please answer. | Answer this. | Answer the question. | Tell me. | Please. | Thank you.")


@dataclass(frozen=True)
class Turn:
    """One question and its answer."""

    user: str
    assistant: str


@dataclass(frozen=True)
class Chat:
    """A conversation, with a system message where there is one."""

    turns: tuple[Turn, ...]
    system: str | None = None


_ALL_FACTS = [(kind, row) for kind in KINDS for row in kind.rows]


class Talker:
    """Draws conversations.

    Facts come in shuffled rounds rather than by single draws, so that none is seen less often than another.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._round: list[tuple[facts.Kind, facts.Row]] = []

    def chat(self) -> Chat:
        """The next conversation."""
        kind = self._rng.random()
        if kind < 0.10:
            return self._story()
        if kind < 0.14:
            return self._name()
        n_turns = 1 if kind < 0.55 else self._rng.choice((2, 2, 3, 3, 4, 6))
        questions: list[Question] = []
        while len(questions) < n_turns:
            questions += self._questions()
        return self._styled(questions)

    def practice(self) -> Chat:
        """Return the chats that take longest to learn: names, sums in many wordings, answers in one word."""
        if self._rng.random() < 0.45:
            return self._named_story()
        if self._rng.random() < 0.1:
            return self._with_tail(self._facts()[0])
        if self._rng.random() < 0.6:
            return self._styled([sums.practice(self._rng) for _ in range(self._rng.randint(1, 3))])
        wish = styles.system(self._rng)
        return self._chat(self._facts(), wish.style, wish.text)

    def _with_tail(self, question: Question) -> Chat:
        """A question with something after it that changes nothing."""
        text = question.text + self._rng.choice((" ", "\n", "\n\n")) + self._rng.choice(_TAILS)
        return Chat((Turn(text, question.reply),))

    def _next_fact(self) -> tuple[facts.Kind, facts.Row]:
        if not self._round:
            self._round = self._rng.sample(_ALL_FACTS, len(_ALL_FACTS))
        return self._round.pop()

    def _questions(self) -> list[Question]:
        """A question, and sometimes one or two more that only make sense after it."""
        draw = self._rng.random()
        if draw < 0.33:
            return [sums.draw(self._rng)]
        if draw < 0.46:
            return [unknown.draw(self._rng)]
        if draw < 0.51:
            asked, reply = self._rng.choice(_SMALL_TALK)
            return [Question(self._rng.choice(asked), reply.reply, reply.brief, reply.word)]
        if draw < 0.57:
            return [self._repeat()]
        if draw < 0.60:
            return [lists.question(self._rng)]
        return self._facts()

    def _facts(self) -> list[Question]:
        kind, row = self._next_fact()
        found = [facts.question(kind, row, self._rng.choice(facts.training_phrasings(kind, row)))]
        while self._rng.random() < 0.12:
            found.append(facts.question(kind, self._rng.choice(kind.rows), self._rng.choice(kind.follow)))
        return found

    def _repeat(self) -> Question:
        """A few words to say again: practice in looking back, which keeps names straight in stories."""
        known = [*world.GIRLS, *world.BOYS, *world.WHATS, *f"{world.TOYS}|{world.COLOURS}".split("|")]
        said = []
        for _ in range(self._rng.randint(1, 6)):
            made = world.made_up_word(self._rng)
            said.append(self._rng.choice((made, made.capitalize(), *self._rng.sample(known, 4))))
        text = self._rng.choice((" ", ", ", " ")).join(said)
        return Question(self._rng.choice(_REPEAT).format(text), text, text, text)

    def _styled(self, questions: list[Question]) -> Chat:
        """The questions as a conversation; a system message or a user may say how to answer."""
        draw = self._rng.random()
        if draw < 0.30:
            wish = styles.system(self._rng)
            return self._chat(questions, wish.style, wish.text)
        if draw < 0.38 and len(questions) == 1:
            wish, asked = styles.wish(self._rng), questions[0]
            order = (wish.text, asked.text) if self._rng.random() < 0.3 else (asked.text, wish.text)
            text = self._rng.choice((" ", " ", "\n")).join(order)
            return Chat((Turn(text, styles.in_style(asked, wish.style)),))
        return self._chat(questions, "reply", None)

    def _chat(self, questions: list[Question], style: styles.Style, system: str | None) -> Chat:
        return Chat(tuple(Turn(self._worded(q.text), styles.in_style(q, style)) for q in questions), system)

    def _worded(self, text: str) -> str:
        """The question as it is, or in the careless or polite form that people type."""
        draw = self._rng.random()
        if draw < 0.06:
            return text.rstrip("?.!")
        if draw < 0.12:
            return text[0].lower() + text[1:].rstrip("?.!")
        if draw < 0.15:
            return text[0].lower() + text[1:]
        if draw < 0.20:
            heads = ("Hi! ", "Hello! ", "Please answer: ", "Question: ", "One more question. ", "So, ", "Q: ")
            return self._rng.choice(heads) + text
        if draw < 0.28:
            return text.replace("What is ", "What's ", 1).replace("Who is ", "Who's ", 1)
        return text

    def _story(self) -> Chat:
        """A story on request; of any hero where the request names something that stories are not about."""
        system = styles.neutral(self._rng) if self._rng.random() < 0.2 else None
        draw = self._rng.random()
        if draw < 0.22:
            return Chat((Turn(self._rng.choice(_ANY_STORY), stories.story(self._rng)),), system)
        what: str | None
        name: str | None
        if draw < 0.30:
            hero, what, name = unknown.topic(self._rng), None, None
        else:
            hero, what, name = self._hero()
        asked = self._worded(self._rng.choice(_STORY_REQUESTS).format(hero=hero))
        return Chat((Turn(asked, stories.story(self._rng, what, name)),), system)

    def _named_story(self) -> Chat:
        """A story on request, whose hero the request names."""
        hero, what, name = self._hero()
        while name is None:
            hero, what, name = self._hero()
        asked = self._worded(self._rng.choice(_STORY_REQUESTS).format(hero=hero))
        return Chat((Turn(asked, stories.story(self._rng, what, name)),))

    def _hero(self) -> tuple[str, str | None, str | None]:
        """A hero to ask a story about, in words, with the kind and the name to give to :func:`stories.story`."""
        she = self._rng.random() < 0.5
        name, child = world.any_name(self._rng, she), "girl" if she else "boy"
        other = self._rng.choice(
            [what for what in world.WHATS if what not in (world.ONLY_BOYS if she else world.ONLY_GIRLS)]
        )
        return self._rng.choice(
            [
                (facts.a(other), other, None),
                (f"a {self._rng.choice(('little', 'small', 'young', 'brave'))} {other}", other, None),
                (name, None, name),
                (f"a {child}", child, None),
                (f"a {child} {self._rng.choice(('named', 'called'))} {name}", child, name),
                (f"{facts.a(other)} {self._rng.choice(('named', 'called'))} {name}", other, name),
                (f"{name} the {other}", other, name),
            ]
        )

    def _name(self) -> Chat:
        """Return a chat in which the user gives a name and later asks for it."""
        name = world.any_name(self._rng, self._rng.random() < 0.5)
        told = self._rng.choice(
            (
                "My name is {}.",
                "I am {}.",
                "Hello, my name is {}.",
                "Hi, I am {}.",
                "Call me {}.",
                "I'm {}.",
                "Hi, I'm {}!",
            )
        )
        asked = self._rng.choice(("What is my name?", "Do you know my name?", "Who am I?", "Can you say my name?"))
        turns = [Turn(told.format(name), f"Nice to meet you, {name}!")]
        if self._rng.random() < 0.5:
            turns += [Turn(self._worded(q.text), q.reply) for q in self._questions()]
        turns.append(Turn(self._worded(asked), f"Your name is {name}."))
        return Chat(tuple(turns), styles.neutral(self._rng) if self._rng.random() < 0.15 else None)
