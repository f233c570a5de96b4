// Syntax tree of a regular expression.
#pragma once

#include "sampling/grammar/triggers/program.hpp"

#include <memory>

namespace pyg {

struct RegexNode {
    enum Kind : uint8_t { EMPTY, BYTES, ASSERTION, LOOKAHEAD, GROUP, SEQUENCE, CHOICE, REPEAT };

    Kind                   kind      = EMPTY;
    RegexInstruction::Kind assertion = RegexInstruction::TEXT_BEGIN;  // of ASSERTION and LOOKAHEAD
    ByteSet                bytes     = {};
    uint32_t               group     = 0;  // from 1; 0: not captured
    uint32_t               min_count = 0;  // of REPEAT
    uint32_t               max_count = 0;
    bool                   greedy    = true;
    std::vector<RegexNode> children  = {};
};

constexpr uint32_t UNBOUNDED = UINT32_MAX;

struct RegexSyntax {
    RegexNode root;
    uint32_t  n_groups;
};

// PYG_ERR_GRAMMAR.
RegexSyntax parse_regex(const std::string & pattern);

}  // namespace pyg
