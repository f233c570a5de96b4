#include "sampling/grammar/steps/steps.hpp"

#include "sampling/grammar/steps/white_space.hpp"

#include <algorithm>
#include <unordered_set>

namespace {

constexpr uint8_t FIRST_LEAD = 0xC2;  // of the bytes that begin a character beyond ASCII
constexpr uint8_t LAST_LEAD  = 0xF4;

// `meets(low, high)`: true if some character of the range can be read.
template <class Meets>
void add_first_bytes_of(Meets && meets, pyg::FirstBytes & bytes) {
    for (uint8_t byte = 0; byte < 0x80; byte++) {
        if (meets(byte, byte)) {
            bytes.add(byte);
        }
    }
    if (meets(0x80, pyg::LAST_CODE_POINT)) {
        bytes.add_range(FIRST_LEAD, LAST_LEAD);
    }
}

}  // namespace

namespace pyg {

GrammarSteps::GrammarSteps(GrammarRules & rules) : rules_(rules), json_(rules.terminals.size()) {}

ObjectStates & GrammarSteps::objects(uint16_t terminal, uint32_t shape) {
    auto & known = json_[terminal].objects;
    known.resize(rules_.terminals[terminal].shapes->objects.size());
    if (!known[shape]) {
        known[shape] = std::make_unique<ObjectStates>(rules_.terminals[terminal].shapes->objects[shape],
                                                      rules_.terminals[terminal].any_order);
    }
    return *known[shape];
}

ArrayStates & GrammarSteps::arrays(uint16_t terminal, uint32_t shape) {
    auto & known = json_[terminal].arrays;
    known.resize(rules_.terminals[terminal].shapes->arrays.size());
    if (!known[shape]) {
        known[shape] = std::make_unique<ArrayStates>(rules_.terminals[terminal].shapes->arrays[shape]);
    }
    return *known[shape];
}

size_t GrammarSteps::n_bytes() const {
    size_t n = stacks_.n_bytes() + texts_.n_bytes();
    for (size_t i = 0; i < json_.size(); i++) {
        n += rules_.terminals[i].shapes->languages.n_bytes();
        for (const auto & each : json_[i].objects) {
            n += each ? each->n_bytes() : 0;
        }
        for (const auto & each : json_[i].arrays) {
            n += each ? each->n_bytes() : 0;
        }
    }
    return n;
}

std::vector<StackId> GrammarSteps::start() {
    std::vector<StackId> result;
    for (const uint32_t first : rules_.alternatives[rules_.root]) {
        result.push_back(rules_.ends(first) ? Stacks::EMPTY : stacks_.push({FrameKind::SYMBOL, 0, 0, 0, first}, 0));
    }
    return result;
}

StackId GrammarSteps::after_symbol(StackId stack) {
    const uint32_t next  = stacks_.top(stack).a + 1;
    const StackId  below = stacks_.below(stack);
    return rules_.ends(next) ? below : stacks_.push({FrameKind::SYMBOL, 0, 0, 0, next}, below);
}

void GrammarSteps::expand(StackId stack, std::vector<StackId> & expanded) {
    std::vector<StackId>        found = {stack};
    std::unordered_set<StackId> seen  = {stack};
    const auto                  add   = [&](StackId each) {
        if (seen.insert(each).second) {
            found.push_back(each);
        }
    };
    for (size_t i = 0; i < found.size(); i++) {
        const StackId now = found[i];
        if (now == Stacks::EMPTY) {
            expanded.push_back(now);
            continue;
        }
        const StackFrame frame = stacks_.top(now);
        if (frame.kind == FrameKind::TEXT) {
            if (languages(frame).contains_empty_text(frame.a)) {
                add(after_scalar(stacks_.below(now), ScalarKind::NUMBER, frame.d));
            }
            if (languages(frame).meets(frame.a, 0, LAST_CODE_POINT)) {
                expanded.push_back(now);
            }
            continue;
        }
        if (frame.kind != FrameKind::SYMBOL) {
            expanded.push_back(now);
            continue;
        }
        const GrammarSymbol & read = symbol(frame);
        if (read.kind == GrammarSymbol::RULE) {
            const StackId rest = after_symbol(now);
            for (const uint32_t first : rules_.alternatives[read.value]) {
                add(rules_.ends(first) ? rest : stacks_.push({FrameKind::SYMBOL, 0, 0, 0, first}, rest));
            }
        } else if (read.kind == GrammarSymbol::TERMINAL) {
            const GrammarTerminal & terminal = rules_.terminals[read.value];
            const auto              index    = static_cast<uint16_t>(read.value);
            const StackId           rest     = after_symbol(now);
            add(terminal.is_text
                    ? stacks_.push({FrameKind::TEXT, 0, index, 0, terminal.text}, rest)
                    : stacks_.push({FrameKind::VALUE, 0, index, 0, terminal.shapes->root, NO_WHITE_SPACE}, rest));
        } else {
            expanded.push_back(now);
        }
    }
}

void GrammarSteps::step(StackId stack, uint32_t code_point, std::vector<StackId> & after) {
    const StackFrame frame = stacks_.top(stack);
    const StackId    below = stacks_.below(stack);
    switch (frame.kind) {
    case FrameKind::SYMBOL:
        if (symbol(frame).kind == GrammarSymbol::CHARS && rules_.char_sets[symbol(frame).value].contains(code_point)) {
            after.push_back(after_symbol(stack));
        }
        return;
    case FrameKind::VALUE:
        return step_value(frame, code_point, below, after);
    case FrameKind::LITERAL:
        return step_literal(frame, code_point, below, after);
    case FrameKind::TEXT:
        return step_text(frame, code_point, below, after);
    case FrameKind::STRING:
        return step_string(frame, code_point, below, after);
    case FrameKind::OBJECT:
        return step_object(frame, code_point, below, after);
    case FrameKind::KEY:
        return step_key(frame, code_point, below, after);
    case FrameKind::FREE_KEY:
        return step_free_key(frame, code_point, below, after);
    case FrameKind::COLON:
        return step_colon(frame, code_point, below, after);
    case FrameKind::ARRAY:
        return step_array(frame, code_point, below, after);
    }
}

void GrammarSteps::add_first_bytes(StackId stack, FirstBytes & bytes) {
    constexpr const char * WHITE_SPACE = " \t\r\n";
    constexpr const char * VALUE       = "\"{[-0123456789ntf";
    const StackFrame       frame       = stacks_.top(stack);
    switch (frame.kind) {
    case FrameKind::SYMBOL:
        if (symbol(frame).kind == GrammarSymbol::CHARS) {
            const CharSet & set = rules_.char_sets[symbol(frame).value];
            add_first_bytes_of([&](uint32_t low, uint32_t high) { return set.meets(low, high); }, bytes);
        }
        return;
    case FrameKind::TEXT:
        return add_first_bytes_of(
            [&](uint32_t low, uint32_t high) { return languages(frame).meets(frame.a, low, high); }, bytes);
    case FrameKind::VALUE:
        bytes.add_all(VALUE);
        return bytes.add_all(WHITE_SPACE);
    case FrameKind::LITERAL:
        return bytes.add(static_cast<uint8_t>(LITERALS[frame.a][frame.b]));
    case FrameKind::OBJECT:
        bytes.add_all("\",}");
        return bytes.add_all(WHITE_SPACE);
    case FrameKind::COLON:
        bytes.add(':');
        return bytes.add_all(WHITE_SPACE);
    case FrameKind::ARRAY:
        bytes.add_all(",]");
        bytes.add_all(VALUE);
        return bytes.add_all(WHITE_SPACE);
    case FrameKind::STRING:
    case FrameKind::FREE_KEY:
        bytes.add_range(' ', 0x7F);
        return bytes.add_range(FIRST_LEAD, LAST_LEAD);
    case FrameKind::KEY:
        if (frame.c != 0) {
            return bytes.add_range(' ', 0x7F);
        }
        bytes.add_all("\"\\");
        for (const auto & [code_point, child] : objects(frame.terminal, frame.shape).names().node(frame.b).children) {
            if (code_point < 0x80) {
                bytes.add(static_cast<uint8_t>(code_point));
            } else {
                bytes.add_range(FIRST_LEAD, LAST_LEAD);
            }
        }
    }
}

// Outside of texts JSON has no characters beyond ASCII.
bool GrammarSteps::can_read(StackId stack, uint32_t low, uint32_t high) {
    const StackFrame frame = stacks_.top(stack);
    switch (frame.kind) {
    case FrameKind::SYMBOL:
        return symbol(frame).kind == GrammarSymbol::CHARS && rules_.char_sets[symbol(frame).value].meets(low, high);
    case FrameKind::TEXT:
        return languages(frame).meets(frame.a, low, high);
    case FrameKind::STRING:
        return frame.b == 0 && languages(frame).meets(frame.a, low, high);
    case FrameKind::FREE_KEY:
        return frame.c == 0 && languages(frame).meets(frame.b, low, high);
    case FrameKind::KEY: {
        ObjectStates & states   = objects(frame.terminal, frame.shape);
        const auto &   children = states.names().node(frame.b).children;
        return frame.c == 0 && std::any_of(children.begin(), children.end(), [&](const auto & child) {
                   return child.first >= low && child.first <= high && states.may_continue(frame.a, child.second);
               });
    }
    default:
        return false;
    }
}

}  // namespace pyg
