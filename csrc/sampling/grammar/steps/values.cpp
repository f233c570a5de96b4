// Steps of values: scalars, and the beginnings of objects and arrays.
#include "sampling/grammar/steps/steps.hpp"
#include "sampling/grammar/steps/white_space.hpp"

namespace pyg {

StackId GrammarSteps::push_value(uint16_t terminal, NodeId node, StackId below) {
    return stacks_.push({FrameKind::VALUE, 0, terminal, 0, node, INLINE}, below);
}

void GrammarSteps::step_value(const StackFrame & value, uint32_t code_point, StackId below,
                              std::vector<StackId> & after) {
    const uint32_t white_space = is_tidy(value) ? tidy_white_space_after(value.b, code_point, /*may_break =*/false)
                                                : any_white_space_after(value.b, code_point);
    if (white_space != NO_WHITE_SPACE) {
        StackFrame next = value;
        next.b          = white_space;
        after.push_back(stacks_.push(next, below));
    } else if (white_space_may_end(value.b)) {
        begin_value(value, code_point, below, after);
    }
}

// If `below` is an array of unique items, the value differs from those it has.
void GrammarSteps::begin_value(const StackFrame & value, uint32_t code_point, StackId below,
                               std::vector<StackId> & after) {
    const uint16_t terminal = value.terminal;
    const Node &   node     = shapes(value).nodes[value.a];
    Languages &    texts    = languages(value);
    uint32_t       taken    = ValueSets::EMPTY;
    uint32_t       text     = ReadTexts::UNTRACKED;
    if (below != Stacks::EMPTY && stacks_.top(below).kind == FrameKind::ARRAY) {
        const StackFrame array  = stacks_.top(below);
        ArrayStates &    states = arrays(array.terminal, array.shape);
        if (array.terminal == terminal && states.shape().unique) {
            taken = states.state(array.a).values;
            text  = ReadTexts::EMPTY;
        }
    }
    ValueSets & values = json_[terminal].values;
    switch (code_point) {
    case 'n':
    case 't':
    case 'f': {
        const uint32_t literal = code_point == 'n' ? 0 : code_point == 't' ? 1 : 2;
        const bool     allowed = literal == 0 ? node.null : literal == 1 ? node.yes : node.no;
        if (allowed && !values.has_literal(taken, literal)) {
            after.push_back(stacks_.push({FrameKind::LITERAL, 0, terminal, 0, literal, 1, 0, text}, below));
        }
        return;
    }
    case '"': {
        const Language string = values.without(texts, node.string, ScalarKind::STRING, taken, texts_);
        if (string != Languages::NOTHING) {
            after.push_back(stacks_.push({FrameKind::STRING, 0, terminal, 0, string, 0, 0, text}, below));
        }
        return;
    }
    case '{':
        for (const uint32_t shape : node.objects) {
            const uint32_t start = objects(terminal, shape).start();
            after.push_back(stacks_.push({FrameKind::OBJECT, FIRST, terminal, shape, start}, below));
        }
        return;
    case '[':
        for (const uint32_t shape : node.arrays) {
            const uint32_t start = arrays(terminal, shape).start();
            after.push_back(stacks_.push({FrameKind::ARRAY, FIRST, terminal, shape, start}, below));
        }
        return;
    default:
        if (code_point == '-' || (code_point >= '0' && code_point <= '9')) {
            const Language number = values.without(texts, node.number, ScalarKind::NUMBER, taken, texts_);
            step_text({FrameKind::TEXT, 0, terminal, 0, number, 0, 0, text}, code_point, below, after);
        }
    }
}

void GrammarSteps::step_literal(const StackFrame & literal, uint32_t code_point, StackId below,
                                std::vector<StackId> & after) {
    const char * const spelled = LITERALS[literal.a];
    if (code_point != static_cast<uint8_t>(spelled[literal.b])) {
        return;
    }
    if (spelled[literal.b + 1] == '\0') {
        after.push_back(literal.d == ReadTexts::UNTRACKED ? below
                                                          : after_scalar(below, ScalarKind::LITERAL, literal.a));
        return;
    }
    StackFrame next = literal;
    next.b++;
    after.push_back(stacks_.push(next, below));
}

// A scalar has ended: an array of unique items keeps it.
StackId GrammarSteps::after_scalar(StackId below, ScalarKind kind, uint32_t text) {
    if (kind != ScalarKind::LITERAL && text == ReadTexts::UNTRACKED) {
        return below;
    }
    StackFrame    array  = stacks_.top(below);
    ArrayStates & states = arrays(array.terminal, array.shape);
    array.a = states.with_values(array.a, json_[array.terminal].values.with(states.state(array.a).values, kind, text));
    return stacks_.push(array, stacks_.below(below));
}

void GrammarSteps::step_text(const StackFrame & text, uint32_t code_point, StackId below,
                             std::vector<StackId> & after) {
    StackFrame next = text;
    next.a          = languages(text).after(text.a, code_point);
    next.d          = texts_.after(text.d, code_point);
    if (next.a != Languages::NOTHING) {
        after.push_back(stacks_.push(next, below));
    }
}

void GrammarSteps::step_string(const StackFrame & string, uint32_t code_point, StackId below,
                               std::vector<StackId> & after) {
    StackFrame next = string;
    switch (read_quoted(string, code_point, next.a, next.b, next.d)) {
    case JsonEscape::INVALID:
        return;
    case JsonEscape::CLOSES:
        after.push_back(after_scalar(below, ScalarKind::STRING, string.d));
        return;
    default:
        after.push_back(stacks_.push(next, below));
    }
}

JsonEscape::Result GrammarSteps::read_quoted(const StackFrame & frame, uint32_t code_point, Language & rest,
                                             uint32_t & packed_escape, uint32_t & text) {
    Languages &              all      = languages(frame);
    JsonEscape               escape   = JsonEscape(packed_escape);
    uint32_t                 decoded  = 0;
    const JsonEscape::Result result   = escape.read(code_point, decoded, is_tidy(frame));
    bool                     leads_on = true;
    switch (result) {
    case JsonEscape::INVALID:
        break;
    case JsonEscape::CLOSES:
        leads_on = all.contains_empty_text(rest);
        break;
    case JsonEscape::INCOMPLETE:
        leads_on =
            escape.may_become(is_tidy(frame), [&](uint32_t low, uint32_t high) { return all.meets(rest, low, high); });
        break;
    case JsonEscape::COMPLETE:
        rest     = all.after(rest, decoded);
        text     = texts_.after(text, decoded);
        leads_on = rest != Languages::NOTHING;
    }
    packed_escape = escape.packed();
    return leads_on ? result : JsonEscape::INVALID;
}

}  // namespace pyg
