// Steps of arrays: brackets, items and commas.
#include "sampling/grammar/steps/steps.hpp"
#include "sampling/grammar/steps/white_space.hpp"

namespace pyg {

void GrammarSteps::step_array(const StackFrame & array, uint32_t code_point, StackId below,
                              std::vector<StackId> & after) {
    StackFrame     next         = array;
    const bool     tidy         = is_tidy(array);
    const bool     may_be_blank = !tidy || array.phase != NEXT || arrays(array.terminal, array.shape).may_end(array.a);
    const uint32_t white_space  = !may_be_blank ? NO_WHITE_SPACE
                                  : tidy        ? tidy_white_space_after(array.b, code_point, /*may_break =*/true)
                                                : any_white_space_after(array.b, code_point);
    if (white_space != NO_WHITE_SPACE) {
        next.b = white_space;
        after.push_back(stacks_.push(next, below));
        return;
    }
    if (!white_space_may_end(array.b)) {
        return;
    }
    if (code_point == ']') {
        if (array.phase != AFTER_COMMA && arrays(array.terminal, array.shape).may_end(array.a)) {
            after.push_back(below);
        }
    } else if (code_point == ',' && array.phase == NEXT) {
        if ((!tidy || array.b == INLINE) && may_have_item(array)) {
            next.phase = AFTER_COMMA;
            next.b     = INLINE;
            after.push_back(stacks_.push(next, below));
        }
    } else if (array.phase != NEXT) {
        begin_item(array, code_point, below, after);
    }
}

// True if there is a next item. Of unique items, one that differs from those before.
bool GrammarSteps::may_have_item(const StackFrame & array) {
    ArrayStates & states = arrays(array.terminal, array.shape);
    for (const ItemAlternative & item : states.next(array.a)) {
        if (!states.shape().unique || has_other_value(array, item.value)) {
            return true;
        }
    }
    return false;
}

bool GrammarSteps::has_other_value(const StackFrame & array, NodeId item) {
    const Node &   node   = shapes(array).nodes[item];
    const uint32_t taken  = arrays(array.terminal, array.shape).state(array.a).values;
    ValueSets &    values = json_[array.terminal].values;
    Languages &    texts  = languages(array);
    return (node.null && !values.has_literal(taken, 0)) || (node.yes && !values.has_literal(taken, 1)) ||
           (node.no && !values.has_literal(taken, 2)) ||
           values.without(texts, node.string, ScalarKind::STRING, taken, texts_) != Languages::NOTHING ||
           values.without(texts, node.number, ScalarKind::NUMBER, taken, texts_) != Languages::NOTHING;
}

void GrammarSteps::begin_item(const StackFrame & array, uint32_t code_point, StackId below,
                              std::vector<StackId> & after) {
    ArrayStates & states = arrays(array.terminal, array.shape);
    for (const ItemAlternative & item : states.next(array.a)) {
        const uint32_t state = states.after(array.a, item);
        const StackId  rest = stacks_.push({FrameKind::ARRAY, NEXT, array.terminal, array.shape, state, INLINE}, below);
        begin_value({FrameKind::VALUE, 0, array.terminal, 0, item.value, INLINE}, code_point, rest, after);
    }
}

}  // namespace pyg
