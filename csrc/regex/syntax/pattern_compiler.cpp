// From trees of regular expressions to languages.
//
// Patterns without assertions are expressions of the store. Assertions speak of the text around them, so what contains
// them is compiled with its continuation: the language of everything that follows. A look-ahead is then an
// intersection with the continuation, and a loop is a variable that is defined by itself. For look-behinds, word
// boundaries and `^`, monitors follow the text from its start: each is a language, of the texts that end in what the
// look-behind wants, and the compiler tells continuations apart by the monitors' states.
#include "boundary/guard.hpp"
#include "regex/syntax/pattern.hpp"
#include "regex/terms/language_store.hpp"

#include <algorithm>
#include <map>

namespace pyg {

namespace {

constexpr uint32_t MOST_NESTED_CONTINUATIONS = 1'500;
constexpr uint32_t MOST_CONTINUATIONS        = 50'000;

using Kind = Pattern::Kind;

[[noreturn]] void fail_too_complex_pattern() {
    throw fail(PYG_ERR_GRAMMAR, "the regular expression is too complex: it repeats look-arounds, anchors or word "
                                "boundaries, or what stands between them, too often");
}

// Match `pattern`, then `next`.
struct Continuation {
    const Pattern * pattern;   // null: the end
    uint32_t        position;  // children of a sequence that are matched, or repetitions that were made
    Continuation *  next;
    Language        end;         // of the end
    bool            needs_past;  // depends on monitors

    std::map<uint32_t, Language>                                   languages;  // by state of the monitors
    std::map<std::pair<const Pattern *, uint32_t>, Continuation *> before;     // those that continue here
    std::map<uint32_t, Language>                                   variables;  // of loops, where needed
};

class PatternCompiler {
  public:
    explicit PatternCompiler(LanguageStore & store) : store_(store) {}

    Language compile(const Pattern & pattern, bool from_anywhere, Language end);

  private:
    using MonitorState                    = uint32_t;
    static constexpr MonitorState NO_PAST = 0;  // where it does not matter

    void add_monitors(const Pattern & pattern);

    Continuation * continuation(const Pattern & pattern, uint32_t position, Continuation * next);
    Continuation * end_continuation(Language end);

    Language at(Continuation * here, MonitorState state);
    Language compiled(Continuation * here, MonitorState state);
    Language at_chars(Continuation * here, MonitorState state);
    Language at_sequence(Continuation * here, MonitorState state);
    Language at_repeat(Continuation * here, MonitorState state);
    Language at_look_ahead(Continuation * here, MonitorState state);
    Language at_word_boundary(Continuation * here, MonitorState state);

    bool can_end(Continuation * here, MonitorState state);
    bool past_holds(const Pattern & pattern, MonitorState state) const;
    bool is_fixed(MonitorState state) const;

    MonitorState monitor_state(const std::vector<Language> & states);
    MonitorState next_state(MonitorState state, uint32_t code_point, uint32_t & high);

    LanguageStore &                               store_;
    std::deque<Continuation>                      continuations_;
    std::vector<Language>                         monitors_;  // at the start
    std::map<const Pattern *, size_t>             monitor_of_;
    std::vector<std::vector<Language>>            states_;
    std::map<std::vector<Language>, MonitorState> state_index_;
    Continuation *                                anything_ = nullptr;
    uint32_t                                      n_nested_ = 0;
};

// --- monitors -------------------------------------------------------------------------------------------------------

void PatternCompiler::add_monitors(const Pattern & pattern) {
    if (!pattern.needs_past) {
        return;
    }
    for (const Pattern & child : pattern.children) {
        if (pattern.kind != Kind::LOOK_BEHIND) {
            add_monitors(child);
        }
    }
    Language monitor;
    if (pattern.kind == Kind::START) {
        monitor = Languages::EMPTY_TEXT;
    } else if (pattern.kind == Kind::WORD_BOUNDARY) {
        monitor = store_.concat(Languages::ANYTHING, store_.chars(pattern.set));
    } else if (pattern.kind == Kind::LOOK_BEHIND) {
        monitor = PatternCompiler(store_).compile(pattern.children[0], true, Languages::EMPTY_TEXT);
    } else {
        return;
    }
    const auto found      = std::find(monitors_.begin(), monitors_.end(), monitor);
    monitor_of_[&pattern] = static_cast<size_t>(found - monitors_.begin());
    if (found == monitors_.end()) {
        monitors_.push_back(monitor);
    }
}

PatternCompiler::MonitorState PatternCompiler::monitor_state(const std::vector<Language> & states) {
    const auto [found, is_new] = state_index_.emplace(states, static_cast<MonitorState>(states_.size()));
    if (is_new) {
        states_.push_back(states);
    }
    return found->second;
}

// `high`: lowered to the last character that has the same next state.
PatternCompiler::MonitorState PatternCompiler::next_state(MonitorState state, uint32_t code_point, uint32_t & high) {
    std::vector<Language> after;
    for (const Language monitor : std::vector<Language>(states_[state])) {
        const auto next = store_.transition(monitor, code_point);
        high            = std::min(high, next.high);
        after.push_back(next.target);
    }
    return monitor_state(after);
}

bool PatternCompiler::past_holds(const Pattern & pattern, MonitorState state) const {
    return store_.term(states_[state][monitor_of_.at(&pattern)]).nullable;
}

// True if the monitors stay in this state whatever follows.
bool PatternCompiler::is_fixed(MonitorState state) const {
    return std::all_of(states_[state].begin(), states_[state].end(), [](Language monitor) {
        return monitor == Languages::NOTHING || monitor == Languages::ANYTHING;
    });
}

// --- continuations --------------------------------------------------------------------------------------------------

Continuation * PatternCompiler::end_continuation(Language end) {
    continuations_.push_back({nullptr, 0, nullptr, end, false, {}, {}, {}});
    return &continuations_.back();
}

bool rest_needs_past(const Pattern & pattern, uint32_t position) {
    if (pattern.kind != Kind::SEQUENCE) {
        return pattern.needs_past;
    }
    return std::any_of(pattern.children.begin() + position, pattern.children.end(),
                       [](const Pattern & child) { return child.needs_past; });
}

Continuation * PatternCompiler::continuation(const Pattern & pattern, uint32_t position, Continuation * next) {
    Continuation *& found = next->before[{&pattern, position}];
    if (!found) {
        if (continuations_.size() >= MOST_CONTINUATIONS) {
            fail_too_complex_pattern();
        }
        continuations_.push_back(
            {&pattern, position, next, 0, next->needs_past || rest_needs_past(pattern, position), {}, {}, {}});
        found = &continuations_.back();
    }
    return found;
}

Language PatternCompiler::at(Continuation * here, MonitorState state) {
    if (!here->pattern) {
        return here->end;
    }
    state            = here->needs_past ? state : NO_PAST;
    const auto found = here->languages.find(state);
    if (found != here->languages.end()) {
        return found->second;
    }
    if (++n_nested_ > MOST_NESTED_CONTINUATIONS) {
        fail_too_complex_pattern();
    }
    const Language result = compiled(here, state);
    n_nested_--;
    here->languages[state] = result;
    return result;
}

Language PatternCompiler::compiled(Continuation * here, MonitorState state) {
    const Pattern & pattern = *here->pattern;
    if (!pattern.has_assertions && is_fixed(state) && pattern.kind != Kind::SEQUENCE) {
        return store_.concat(pattern.kind == Kind::REPEAT ? plain_rest(store_, pattern, here->position)
                                                          : plain_pattern(store_, pattern),
                             at(here->next, state));
    }
    switch (pattern.kind) {
    case Kind::CHARS:
        return at_chars(here, state);
    case Kind::SEQUENCE:
        return at_sequence(here, state);
    case Kind::CHOICE: {
        std::vector<Language> alternatives;
        for (const Pattern & child : pattern.children) {
            alternatives.push_back(at(continuation(child, 0, here->next), state));
        }
        return store_.any_of(std::move(alternatives));
    }
    case Kind::REPEAT:
        return at_repeat(here, state);
    case Kind::LOOK_AHEAD:
        return at_look_ahead(here, state);
    case Kind::END:
        return store_.all_of({Languages::EMPTY_TEXT, at(here->next, state)});
    case Kind::WORD_BOUNDARY:
        return at_word_boundary(here, state);
    default:  // START, LOOK_BEHIND
        return past_holds(pattern, state) != pattern.negative ? at(here->next, state) : Languages::NOTHING;
    }
}

Language PatternCompiler::at_chars(Continuation * here, MonitorState state) {
    std::map<MonitorState, std::vector<std::pair<uint32_t, uint32_t>>> groups;
    for (const auto & [low, high] : here->pattern->set.ranges) {
        for (uint64_t code_point = low; code_point <= high;) {
            uint32_t           last = high;
            const MonitorState next =
                here->next->needs_past ? next_state(state, static_cast<uint32_t>(code_point), last) : NO_PAST;
            groups[next].emplace_back(static_cast<uint32_t>(code_point), last);
            code_point = uint64_t{last} + 1;
        }
    }
    std::vector<Language> alternatives;
    for (auto & [next, ranges] : groups) {
        alternatives.push_back(store_.concat(store_.chars(CharSet::of(std::move(ranges))), at(here->next, next)));
    }
    return store_.any_of(std::move(alternatives));
}

Language PatternCompiler::at_sequence(Continuation * here, MonitorState state) {
    const Pattern & sequence = *here->pattern;
    const auto      n        = static_cast<uint32_t>(sequence.children.size());
    uint32_t        first = here->position, last = first;
    while (is_fixed(state) && last < n && !sequence.children[last].has_assertions) {
        last++;
    }
    const auto after = [&](uint32_t position) {
        return position == n ? here->next : continuation(sequence, position, here->next);
    };
    if (last > first) {
        return store_.concat(plain_sequence(store_, sequence, first, last), at(after(last), state));
    }
    return first == n ? at(here->next, state) : at(continuation(sequence.children[first], 0, after(first + 1)), state);
}

Language PatternCompiler::at_repeat(Continuation * here, MonitorState state) {
    const Pattern & pattern = *here->pattern;
    const Pattern & body    = pattern.children[0];
    if (here->position < pattern.least) {
        return at(continuation(body, 0, continuation(pattern, here->position + 1, here->next)), state);
    }
    if (pattern.most != UNBOUNDED) {
        const Language left = at(here->next, state);
        return here->position >= pattern.most
                   ? left
                   : store_.any_of(
                         {left,
                          at(continuation(body, 0, continuation(pattern, here->position + 1, here->next)), state)});
    }
    // A loop: inside its own definition, it is a variable.
    const auto [variable, is_outermost] = here->variables.emplace(state, Languages::NOTHING);
    if (!is_outermost) {
        if (variable->second == Languages::NOTHING) {
            variable->second = store_.variable(can_end(here, state));
        }
        return variable->second;
    }
    const Language definition = store_.any_of({at(here->next, state), at(continuation(body, 0, here), state)});
    if (variable->second == Languages::NOTHING) {
        return definition;
    }
    store_.define(variable->second, definition);
    return variable->second;
}

Language PatternCompiler::at_look_ahead(Continuation * here, MonitorState state) {
    const Pattern & pattern = *here->pattern;
    const Language  ahead   = at(continuation(pattern.children[0], 0, anything_), state);
    return store_.all_of({pattern.negative ? store_.complement(ahead) : ahead, at(here->next, state)});
}

Language PatternCompiler::at_word_boundary(Continuation * here, MonitorState state) {
    const Pattern & pattern    = *here->pattern;
    const Language  word_next  = store_.concat(store_.chars(pattern.set), Languages::ANYTHING);
    const bool      wants_word = past_holds(pattern, state) == pattern.negative;
    return store_.all_of({wants_word ? word_next : store_.complement(word_next), at(here->next, state)});
}

// --- does the text end here? ----------------------------------------------------------------------------------------

// True if "" is in at(here, state), without computing that. Repetitions that match "" add nothing to not being made.
bool PatternCompiler::can_end(Continuation * here, MonitorState state) {
    if (!here->pattern) {
        return store_.term(here->end).nullable;
    }
    const Pattern & pattern = *here->pattern;
    switch (pattern.kind) {
    case Kind::CHARS:
        return false;
    case Kind::SEQUENCE: {
        const uint32_t position = here->position;
        if (position == pattern.children.size()) {
            return can_end(here->next, state);
        }
        return can_end(continuation(pattern.children[position], 0, continuation(pattern, position + 1, here->next)),
                       state);
    }
    case Kind::CHOICE:
        return std::any_of(pattern.children.begin(), pattern.children.end(),
                           [&](const Pattern & child) { return can_end(continuation(child, 0, here->next), state); });
    case Kind::REPEAT:
        return here->position >= pattern.least
                   ? can_end(here->next, state)
                   : can_end(continuation(pattern.children[0], 0, continuation(pattern, pattern.least, here->next)),
                             state);
    case Kind::LOOK_AHEAD:
        return can_end(continuation(pattern.children[0], 0, anything_), state) != pattern.negative &&
               can_end(here->next, state);
    case Kind::END:
        return can_end(here->next, state);
    case Kind::WORD_BOUNDARY:  // no word follows
        return past_holds(pattern, state) != pattern.negative && can_end(here->next, state);
    default:  // START, LOOK_BEHIND
        return past_holds(pattern, state) != pattern.negative && can_end(here->next, state);
    }
}

Language PatternCompiler::compile(const Pattern & pattern, bool from_anywhere, Language end) {
    states_.emplace_back();  // NO_PAST
    state_index_[{}] = NO_PAST;
    add_monitors(pattern);
    anything_                  = end_continuation(Languages::ANYTHING);
    Continuation *     matched = continuation(pattern, 0, end_continuation(end));
    const MonitorState start   = monitor_state(monitors_);
    if (!from_anywhere) {
        return at(matched, start);
    }
    const Pattern before = Pattern::repeat(Pattern::chars(CharSet::all()), 0, UNBOUNDED);
    return at(continuation(before, 0, matched), start);
}

}  // namespace

Language compile_pattern(LanguageStore & store, const Pattern & pattern, bool whole) {
    return PatternCompiler(store).compile(pattern, !whole, whole ? Languages::EMPTY_TEXT : Languages::ANYTHING);
}

}  // namespace pyg
