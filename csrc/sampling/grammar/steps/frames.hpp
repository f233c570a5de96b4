// Frames of the grammar automaton's stacks: what is being read, and what comes after it.
#pragma once

#include "regex/languages.hpp"
#include "sampling/grammar/tables/id_index.hpp"

#include <cstddef>
#include <cstdint>

namespace pyg {

enum class FrameKind : uint8_t {
    SYMBOL,    // a symbol of a rule; a: its index
    VALUE,     // a JSON value; a: node, b: white space before it
    LITERAL,   // null, true or false; a: index of LITERALS, b: characters read, d: 1 if a later item must differ
    TEXT,      // text without quotes (numbers, regular expressions); a: language of the rest, d: text so far
    STRING,    // inside quotes; a: language of the rest, b: escape, d: text so far
    OBJECT,    // between members; shape, phase, a: object state, b: white space
    KEY,       // inside the quotes of a name that the schema has; shape, a: object state, b: node of the name trie,
               // c: escape
    FREE_KEY,  // of another name; shape, phase: index of the free members, a: object state, b: language, c: escape,
               // d: text so far
    COLON,     // after a name; shape, a: object state with this member, b: its node, c: white space
    ARRAY,     // between items; shape, phase, a: array state, b: white space
};

// Text so far is kept only where it matters later (unique items, distinct names): else it is 0.
struct StackFrame {
    FrameKind kind;
    uint8_t   phase    = 0;
    uint16_t  terminal = 0;  // index of the grammar's terminal that it belongs to
    uint32_t  shape    = 0;  // of an object or array
    uint32_t  a        = 0;
    uint32_t  b        = 0;
    uint32_t  c        = 0;
    uint32_t  d        = 0;

    bool operator==(const StackFrame & other) const {
        return kind == other.kind && phase == other.phase && terminal == other.terminal && shape == other.shape &&
               a == other.a && b == other.b && c == other.c && d == other.d;
    }
};

constexpr const char * LITERALS[] = {"null", "true", "false"};

// Of objects and arrays: what comes next.
enum Phase : uint8_t {
    FIRST,  // after the opening bracket: an element, or the closing bracket
    NEXT,   // after an element: a comma, or the closing bracket
    AFTER_COMMA,
};

inline uint64_t hash_of(const StackFrame & frame) {
    const auto     pair = [](uint32_t high, uint32_t low) { return static_cast<uint64_t>(high) << 32 | low; };
    const uint32_t kind = static_cast<uint32_t>(frame.kind) << 24 | static_cast<uint32_t>(frame.phase) << 16;
    uint64_t       hash = mixed_hash(0, pair(frame.shape, kind | frame.terminal));
    hash                = mixed_hash(hash, pair(frame.a, frame.b));
    return mixed_hash(hash, pair(frame.c, frame.d));
}

}  // namespace pyg
