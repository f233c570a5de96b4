// Steps of the grammar automaton: what each kind of frame does with a character.
#pragma once

#include "sampling/grammar/parser.hpp"
#include "sampling/grammar/steps/array_states.hpp"
#include "sampling/grammar/steps/json_escapes.hpp"
#include "sampling/grammar/steps/object_states.hpp"
#include "sampling/grammar/steps/read_texts.hpp"
#include "sampling/grammar/steps/stacks.hpp"
#include "sampling/grammar/steps/value_sets.hpp"
#include "sampling/grammar/tables/first_bytes.hpp"

#include <memory>
#include <vector>

namespace pyg {

// For one thread at a time. The rules must outlive it; their languages grow as they are followed.
class GrammarSteps {
  public:
    explicit GrammarSteps(GrammarRules & rules);

    Stacks & stacks() { return stacks_; }

    // The stacks at the beginning of the grammar, not expanded.
    std::vector<StackId> start();

    // Replace what reads no character (rules, complete texts) by what comes next: stacks that read a character, or the
    // empty one.
    void expand(StackId stack, std::vector<StackId> & expanded);

    // True if expand() may replace the stack; else it reads a character, or is the empty one.
    bool expands(StackId stack) const {
        const FrameKind kind = stacks_.top(stack).kind;
        return stack != Stacks::EMPTY && (kind == FrameKind::SYMBOL || kind == FrameKind::TEXT);
    }

    // Add the stacks after one character, not expanded. None if the stack cannot read it.
    void step(StackId stack, uint32_t code_point, std::vector<StackId> & after);

    // Add the first bytes of all characters that the stack can read, and of some others.
    void add_first_bytes(StackId stack, FirstBytes & bytes);

    // True if the stack can read some character of low..high.
    bool can_read(StackId stack, uint32_t low, uint32_t high);

    // The stack after the symbol on top, a token.
    StackId after_symbol(StackId stack);

    const GrammarSymbol & symbol(const StackFrame & frame) const { return rules_.symbols[frame.a]; }
    Languages & languages(const StackFrame & frame) { return rules_.terminals[frame.terminal].shapes->languages; }

    size_t n_bytes() const;

  private:
    // The terminal's shapes, and the states of its objects and arrays, created when they are first met.
    struct Json {
        std::vector<std::unique_ptr<ObjectStates>> objects;  // by shape
        std::vector<std::unique_ptr<ArrayStates>>  arrays;
        ValueSets                                  values;
    };

    const SchemaShapes & shapes(const StackFrame & frame) const { return *rules_.terminals[frame.terminal].shapes; }
    bool           is_tidy(const StackFrame & frame) const { return !rules_.terminals[frame.terminal].any_spelling; }
    ObjectStates & objects(uint16_t terminal, uint32_t shape);
    ArrayStates &  arrays(uint16_t terminal, uint32_t shape);

    // values.cpp
    StackId push_value(uint16_t terminal, NodeId node, StackId below);
    void    begin_value(const StackFrame & value, uint32_t code_point, StackId below, std::vector<StackId> & after);
    void    step_value(const StackFrame & value, uint32_t code_point, StackId below, std::vector<StackId> & after);
    void    step_literal(const StackFrame & literal, uint32_t code_point, StackId below, std::vector<StackId> & after);
    void    step_text(const StackFrame & text, uint32_t code_point, StackId below, std::vector<StackId> & after);
    void    step_string(const StackFrame & string, uint32_t code_point, StackId below, std::vector<StackId> & after);
    StackId after_scalar(StackId below, ScalarKind kind, uint32_t text);

    // Read a character inside quotes, and update the language of the rest, the escape and the text so far. INVALID also
    // where the language does not lead on.
    JsonEscape::Result read_quoted(const StackFrame & frame, uint32_t code_point, Language & rest,
                                   uint32_t & packed_escape, uint32_t & text);

    // objects.cpp
    void    step_object(const StackFrame & object, uint32_t code_point, StackId below, std::vector<StackId> & after);
    void    begin_key(const StackFrame & object, StackId below, std::vector<StackId> & after);
    void    step_key(const StackFrame & key, uint32_t code_point, StackId below, std::vector<StackId> & after);
    void    step_free_key(const StackFrame & key, uint32_t code_point, StackId below, std::vector<StackId> & after);
    StackId after_free_key(const StackFrame & key, StackId below);
    void    step_colon(const StackFrame & colon, uint32_t code_point, StackId below, std::vector<StackId> & after);

    // arrays.cpp
    void step_array(const StackFrame & array, uint32_t code_point, StackId below, std::vector<StackId> & after);
    void begin_item(const StackFrame & array, uint32_t code_point, StackId below, std::vector<StackId> & after);
    bool may_have_item(const StackFrame & array);
    bool has_other_value(const StackFrame & array, NodeId item);

    GrammarRules &    rules_;
    Stacks            stacks_;
    ReadTexts         texts_;
    std::vector<Json> json_;  // by terminal
};

}  // namespace pyg
