"""Chat templates that use unbounded memory or nesting: they are refused, and the process survives."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from support.checkpoints import models

import pyggml


def grown(start: str, step: str, n: int = 100, end: str = "") -> str:
    """A template that repeats a step with ``ns.x``."""
    loop = f"{{% for i in range({n}) %}}{step}{{% endfor %}}"
    return f"{{% set ns = namespace(x={start}) %}}{loop}{end}"


MEGABYTE = "{% set x = ['a' * 1000]|join %}{% set x = [x * 1000]|join %}"
TOO_LARGE = {
    "doubled": grown("'ab'", "{% set ns.x = ns.x ~ ns.x %}"),
    "added": grown("'ab'", "{% set ns.x = ns.x + ns.x %}"),
    "listed": grown("[1]", "{% set ns.x = ns.x + ns.x %}"),
    "replaced": grown("'ab'", "{% set ns.x = ns.x|replace('a', ns.x)|replace('b', ns.x) %}"),
    "repeated": "{{ 'a' * 1000000000000 }}",
    "joined": "{{ range(100000)|join('a' * 100000) }}",
    "indented": "{{ 'a\\nb'|indent(100000000000) }}",
    "as JSON": "{{ [1, [2]]|tojson(indent=100000000000) }}",
    "printed": grown("'a' * 100000000", "{{ ns.x }}"),
    "shared": grown("['a' * 1000]", "{% set ns.x = [ns.x, ns.x] %}", 60, "{{ ns.x }}"),
    "passed on": "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('a') }}",
    # Lines are read by the standard library's own code, whose memory was once only counted when it was freed.
    "kept with lines": "{% set x = ['a' * 1000]|join %}{% set x = [x * 100]|join %}{% set l = [] %}"
    "{% for i in range(1900) %}{% set _ = x|indent|length %}{% set _ = l.append([x, x]|join) %}{% endfor %}",
}
TOO_DEEP = {
    "in itself": "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
    "in itself as JSON": "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}",
    "nested": grown("[]", "{% set ns.x = [ns.x] %}", 16000, "{{ ns.x }}"),
}
ENDLESS_TEXT = {
    "shared as JSON": grown("[1]", "{% set ns.x = [ns.x, ns.x] %}", 60, "{{ ns.x|tojson }}"),
    "shared as text": grown("[1]", "{% set ns.x = [ns.x, ns.x] %}", 60, "{{ ns.x|string|length }}"),
    "split": MEGABYTE + "{{ x.split('a')|length }}",
    "sorted": MEGABYTE + grown("[x]", "{% set ns.x = ns.x + ns.x %}", 10, "{{ ns.x|sort|length }}"),
}
REFUSED = {
    "{{ 5 is divisibleby(0) }}": "by zero",
    "{{ [5]|select('divisibleby', 0)|list }}": "by zero",
    "{{ 10 ** 100000000 }}": "Unexpected token",  # the engine's parser knows no powers
    "{{ '%999999999d' % 5 }}": "numbers that are too large",
    "{{ '{:>999999999}'.format(5) }}": "numbers that are too large",
    "{{ 'a'|center(999999999) }}": "numbers that are too large",
    "{{ (5).to_bytes(10000000000, 'big') }}": "numbers that are too large",
    "{{ 5|round(1000000000) }}": "numbers that are too large",
    "{{ [1]|slice(9999999, 'x')|list|length }}": "numbers that are too large",
    "{{ ''.__class__.__mro__ }}": "unsafe",
    "{{ 'a' * 200001 }}" + " " * 200_000: "200018 characters",
}
LEVELS = 20_000
#: What upstream makes of each is freed by a recursion, on the thread that closes it.
NESTED_AS_TEXT = {
    "not": f"{{{{ {'not ' * LEVELS}1 }}}}",
    "sum": f"{{{{ 1{' + 1' * LEVELS} }}}}",
    "members": f"{{{{ a{'.b' * LEVELS} }}}}",
    "filters": f"{{{{ 'a'{'|e' * LEVELS} }}}}",
    "lists": f"{{{{ {'[' * LEVELS}{']' * LEVELS} }}}}",
    "tuples": f"{{{{ {'(1, ' * LEVELS}1{')' * LEVELS} }}}}",
    "objects": f"{{{{ {'{1: ' * LEVELS}1{'}' * LEVELS} }}}}",
    "branches": f"{{% if 1 %}}{'{% elif 1 %}' * LEVELS}{{% endif %}}",
    "blocks": "{% if 1 %}" * LEVELS + "{% endif %}" * LEVELS,
}


def long(name: str, letter: str, n_thousands: int, before: str = "", after: str = "") -> str:
    """A template's text of thousands of letters, in one part."""
    kilo = f"{{% set k = ['{letter}' * 1000]|join %}}"
    return f"{kilo}{{% set {name} = ['{before}', [k * {n_thousands}]|join, '{after}']|join %}}"


#: Each would take hours with the standard library's ways to look for texts; and what it says.
QUADRATIC = {
    "in": (long("x", "a", 4000) + long("y", "a", 2000, after="b") + "{{ y in x }}", "False"),
    "rsplit": (long("x", "a", 4000) + long("y", "a", 2000, before="b") + "{{ x.rsplit(y)|length }}", "1"),
    "rsplit, all but the first": (
        long("x", "a", 4000) + long("y", "a", 2000, before="a", after="b") + "{{ x.rsplit(y)|length }}",
        "1",
    ),
    "strip": (long("x", "a", 2000) + long("y", "b", 2000, after="a") + "{{ x.strip(y)|length }}", "0"),
}
#: Tuples that hold one twice, which holds another twice, and so on.
SHARED_TUPLES = grown("(1, 2)", "{% set ns.x = (ns.x, ns.x) %}", 45, "{{ COMPARISON }}")
HOLDS_ITSELF = {
    "list": "{% set l = [('abcdefgh' * 1000) * 50] %}{% set _ = l.append(l) %}fine",
    "object": "{% set ns = namespace(x=('abcdefgh' * 1000) * 50) %}{% set ns.y = {'z': [ns]} %}fine",
    "caller": "{% macro m(ns) %}{% set ns.f = caller %}{% endmacro %}"
    "{% set ns = namespace(x=('abcdefgh' * 1000) * 50) %}"
    "{% call m(ns) %}{% endcall %}fine",
}
RENDER = """
import resource, sys, time, pyggml
template = sys.stdin.read()
def most_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
with pyggml.Model(pyggml.SHIPPED_MODEL) as model:
    with pyggml.ChatTemplates(model) as templates:
        templates.render([{"role": "user", "content": "hi"}])
    before = most_mib()
    try:
        start = time.process_time()
        with pyggml.ChatTemplates(model, template) as templates:
            for _ in range(int(sys.argv[1])):
                text = templates.render([{"role": "user", "content": "hi"}]).text
            print(text if 0 < len(text) < 20 else len(text))
    except pyggml.InvalidParameterError as error:
        print(error)
    seconds = time.process_time() - start
    with pyggml.ChatTemplates(model) as templates:  # the process is as good as before
        assert templates.render([{"role": "user", "content": "hi"}]).text
    print(most_mib() - before, seconds)
"""
counts_memory = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts")


def rendered_alone(template: str, n_times: int = 1) -> tuple[str, int]:
    """Render a template in a separate process; return its output and the memory in MiB that it took."""
    text, mib, _ = measured_alone(template, n_times)
    return text, mib


def measured_alone(template: str, n_times: int = 1) -> tuple[str, int, float]:
    """The same, and the seconds of processor time."""
    command = [sys.executable, "-c", RENDER, str(n_times)]
    done = subprocess.run(command, input=template, capture_output=True, text=True, check=True)
    text, _, figures = done.stdout.strip().rpartition("\n")
    mib, seconds = figures.split()
    return text, int(mib), float(seconds)


@pytest.mark.slow_except("indented")
@counts_memory
@pytest.mark.parametrize("template", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_templates_that_take_memory_without_end(template: str) -> None:
    text, mib = rendered_alone(template)
    assert "the template takes too much memory" in text
    assert mib < 600


@pytest.mark.slow_except("in itself as JSON")
@counts_memory
@pytest.mark.parametrize("template", TOO_DEEP.values(), ids=TOO_DEEP.keys())
def test_templates_that_nest_without_end(template: str) -> None:
    text, mib = rendered_alone(template)
    assert "calls itself, or nests lists, too many times" in text
    assert mib < 600


@pytest.mark.slow_except(every=6)
@pytest.mark.parametrize(("template", "reason"), REFUSED.items())
def test_what_would_end_the_process_or_never_end(template: str, reason: str) -> None:
    assert reason in rendered_alone(template)[0]


@pytest.mark.slow
@pytest.mark.parametrize("template", HOLDS_ITSELF.values(), ids=HOLDS_ITSELF.keys())
def test_what_holds_itself_is_freed(template: str) -> None:
    text, mib = rendered_alone(template, 150)
    assert text == "fine" or "nests lists, too many times" in text
    assert mib < 300


@pytest.mark.slow_except("branches")
@pytest.mark.parametrize("template", NESTED_AS_TEXT.values(), ids=NESTED_AS_TEXT.keys())
def test_what_is_written_too_deep(template: str) -> None:
    assert "nests more than 1000 levels deep" in rendered_alone(template)[0]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other linkers cannot replace the standard library's search")
@pytest.mark.parametrize(("template", "text"), QUADRATIC.values(), ids=QUADRATIC.keys())
def test_long_texts_are_looked_for_in_long_ones(template: str, text: str) -> None:
    assert rendered_alone(template)[0] == text


@pytest.mark.slow
@pytest.mark.parametrize("comparison", ["ns.x == ns.x", "{ns.x: 1}|length"])
def test_tuples_that_hold_each_other_are_not_compared_without_end(comparison: str) -> None:
    assert "the template does not end" in rendered_alone(SHARED_TUPLES.replace("COMPARISON", comparison))[0]


@pytest.mark.slow
def test_an_endless_template_is_read_once() -> None:
    """It was tried with conversation after conversation, each of which had its own three seconds."""
    loop = "{% for i in range(100000) %}"
    text, _, seconds = measured_alone(loop * 3 + "{% endfor %}" * 3)
    assert "could not be read: the template does not end" in text
    assert seconds < 3.9  # of processor time


@pytest.mark.slow  # until the time is over
@counts_memory
@pytest.mark.parametrize("template", ENDLESS_TEXT.values(), ids=ENDLESS_TEXT.keys())
def test_texts_without_end(template: str) -> None:
    text, mib = rendered_alone(template)
    assert "the template does not end" in text
    assert mib < 600


@pytest.mark.slow  # upstream walks the whole list at every step
@counts_memory
def test_deep_lists_are_freed() -> None:
    """By a recursion that nothing may stop."""
    text = rendered_alone(grown("[]", "{% set ns.x = [ns.x] %}", 20000, "fine"))[0]
    assert text == "fine" or "the template does not end" in text  # as the machine is fast or slow


STEPS = (
    "{% set ns.x = ns.x ~ ns.x %}",
    "{% set ns.x = ns.x ~ 'some text' %}",
    "{% set ns.x = ns.x|string * 3 %}",
    "{% set ns.x = [ns.x, ns.x] %}",
    "{% set ns.x = [ns.x] %}",
    "{% set ns.x = ns.x|tojson %}",
    "{% set ns.x = ns.x|string|replace('a', ns.x|string) %}",
    "{% set ns.x = ns.x|string|upper|trim %}",
    "{% set ns.x = range(1000)|join(ns.x|string) %}",
    "{% set ns.x = {'a': ns.x, 'b': ns.x} %}",
    "{% set ns.x = (ns.x|string).split('a') %}",
    "{% set ns.x = ns.x|list %}",
    "{{ ns.x }}",
    "{% if ns.x == [ns.x] %}{{ ns.x }}{% endif %}",
)


@pytest.mark.slow_except("2")
@counts_memory
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 16))])
def test_random_templates_that_grow(seed: int) -> None:
    """Whatever they do, they are rendered or refused, and take no more than the limit and what freeing it needs."""
    draw = random.Random(seed)
    step = "".join(draw.sample(STEPS, draw.randint(1, 4)))
    text, mib = rendered_alone(grown(draw.choice(["'a'", "[1, 'a']"]), step, draw.choice([20, 200]), "{{ ns.x }}"))
    assert text
    assert mib < 900


@counts_memory
def test_long_conversations_have_room() -> None:
    text = (models.VOCABULARIES / "templates" / "Qwen-Qwen3-0.6B.jinja").read_text("utf-8")
    with pyggml.Model(pyggml.SHIPPED_MODEL) as model, pyggml.ChatTemplates(model, text) as templates:
        many = [{"role": ("user", "assistant")[i % 2], "content": "hi"} for i in range(501)]
        assert len(templates.render(many).text) > 501 * 20
        assert len(templates.render([{"role": "user", "content": "x" * 10**7}]).text) > 10**7


@pytest.mark.slow_except("message0", "message1")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [["a"]]},
        {"role": "assistant", "tool_calls": ["a"]},
        {"role": "assistant", "tool_calls": [{"function": "a"}]},
    ],
)
def test_malformed_messages_beside_tools(message: dict[str, Any]) -> None:
    """Also where the template has no place for tools, so that they are written into the messages."""
    tool = {"type": "function", "function": {"name": "a", "description": "b", "parameters": {}}}
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with (
        pyggml.Model(pyggml.SHIPPED_MODEL) as model,
        pyggml.ChatTemplates(model, plain) as templates,
        pytest.raises(pyggml.InvalidParameterError),
    ):
        templates.render([message], tools=[tool])
