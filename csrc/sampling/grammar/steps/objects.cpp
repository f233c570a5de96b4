// Steps of objects: braces, names, colons and commas.
#include "sampling/grammar/steps/steps.hpp"
#include "sampling/grammar/steps/white_space.hpp"

#include <algorithm>

namespace pyg {

void GrammarSteps::step_object(const StackFrame & object, uint32_t code_point, StackId below,
                               std::vector<StackId> & after) {
    StackFrame                  next  = object;
    const ObjectStates::State & state = objects(object.terminal, object.shape).state(object.a);
    const bool                  tidy  = is_tidy(object);
    // Tidy objects have none before a comma.
    const bool     may_be_blank = !tidy || object.phase != NEXT || state.may_end;
    const uint32_t white_space  = !may_be_blank ? NO_WHITE_SPACE
                                  : tidy        ? tidy_white_space_after(object.b, code_point, /*may_break =*/true)
                                                : any_white_space_after(object.b, code_point);
    if (white_space != NO_WHITE_SPACE) {
        next.b = white_space;
        after.push_back(stacks_.push(next, below));
        return;
    }
    if (!white_space_may_end(object.b)) {
        return;
    }
    if (code_point == '"' && object.phase != NEXT) {
        begin_key(object, below, after);
    } else if (code_point == '}' && object.phase != AFTER_COMMA && state.may_end) {
        after.push_back(below);
    } else if (code_point == ',' && object.phase == NEXT && state.any_next && (!tidy || object.b == INLINE)) {
        next.phase = AFTER_COMMA;
        next.b     = INLINE;
        after.push_back(stacks_.push(next, below));
    }
}

void GrammarSteps::begin_key(const StackFrame & object, StackId below, std::vector<StackId> & after) {
    ObjectStates & states = objects(object.terminal, object.shape);
    if (states.may_continue(object.a, 0)) {
        after.push_back(stacks_.push({FrameKind::KEY, 0, object.terminal, object.shape, object.a, 0, 0}, below));
    }
    const std::vector<bool> free_next = states.state(object.a).free_next;
    const uint32_t          text      = states.keeps_names() ? ReadTexts::EMPTY : ReadTexts::UNTRACKED;
    const uint32_t          taken     = states.state(object.a).names;
    for (size_t i = 0; i < free_next.size(); i++) {
        const Language names =
            free_next[i] ? json_[object.terminal].values.without(languages(object), states.shape().free[i].names,
                                                                 ScalarKind::STRING, taken, texts_)
                         : Languages::NOTHING;
        if (names != Languages::NOTHING) {
            after.push_back(stacks_.push(
                {FrameKind::FREE_KEY, static_cast<uint8_t>(i), object.terminal, object.shape, object.a, names, 0, text},
                below));
        }
    }
}

void GrammarSteps::step_key(const StackFrame & key, uint32_t code_point, StackId below, std::vector<StackId> & after) {
    ObjectStates &   states = objects(key.terminal, key.shape);
    const NameTrie & names  = states.names();
    StackFrame       next   = key;
    JsonEscape       escape = JsonEscape(key.c);
    uint32_t         decoded;
    switch (escape.read(code_point, decoded, is_tidy(key))) {
    case JsonEscape::INVALID:
        return;
    case JsonEscape::CLOSES: {
        const uint32_t member = names.node(key.b).member;
        if (member != NameTrie::NONE && states.state(key.a).next[member]) {
            after.push_back(
                stacks_.push({FrameKind::COLON, 0, key.terminal, key.shape, states.after_member(key.a, member),
                              states.shape().members[member].value, INLINE},
                             below));
        }
        return;
    }
    case JsonEscape::INCOMPLETE: {
        const bool leads_on = escape.may_become(is_tidy(key), [&](uint32_t low, uint32_t high) {
            const auto & children = names.node(key.b).children;
            return std::any_of(children.begin(), children.end(), [&](const auto & child) {
                return child.first >= low && child.first <= high && states.may_continue(key.a, child.second);
            });
        });
        if (!leads_on) {
            return;
        }
        break;
    }
    case JsonEscape::COMPLETE:
        next.b = names.after(key.b, decoded);
        if (next.b == NameTrie::NONE || !states.may_continue(key.a, next.b)) {
            return;
        }
    }
    next.c = escape.packed();
    after.push_back(stacks_.push(next, below));
}

void GrammarSteps::step_free_key(const StackFrame & key, uint32_t code_point, StackId below,
                                 std::vector<StackId> & after) {
    StackFrame next = key;
    switch (read_quoted(key, code_point, next.b, next.c, next.d)) {
    case JsonEscape::INVALID:
        return;
    case JsonEscape::CLOSES:
        after.push_back(after_free_key(key, below));
        return;
    default:
        after.push_back(stacks_.push(next, below));
    }
}

StackId GrammarSteps::after_free_key(const StackFrame & key, StackId below) {
    ObjectStates & states = objects(key.terminal, key.shape);
    const uint32_t before = states.state(key.a).names;
    const uint32_t names =
        key.d == ReadTexts::UNTRACKED ? before : json_[key.terminal].values.with(before, ScalarKind::STRING, key.d);
    return stacks_.push({FrameKind::COLON, 0, key.terminal, key.shape, states.after_free(key.a, key.phase, names),
                         states.shape().free[key.phase].value, INLINE},
                        below);
}

void GrammarSteps::step_colon(const StackFrame & colon, uint32_t code_point, StackId below,
                              std::vector<StackId> & after) {
    const uint32_t white_space = is_tidy(colon) ? NO_WHITE_SPACE : any_white_space_after(colon.c, code_point);
    if (white_space != NO_WHITE_SPACE) {
        StackFrame next = colon;
        next.c          = white_space;
        after.push_back(stacks_.push(next, below));
    } else if (code_point == ':' && white_space_may_end(colon.c)) {
        const StackId rest =
            stacks_.push({FrameKind::OBJECT, NEXT, colon.terminal, colon.shape, colon.a, INLINE}, below);
        after.push_back(push_value(colon.terminal, colon.b, rest));
    }
}

}  // namespace pyg
