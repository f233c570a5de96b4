// The parts of a regular expression.
#pragma once

#include "sampling/grammar/triggers/program.hpp"

#include <memory>

namespace pyg {

struct TriggerNode {
    enum Kind : uint8_t { EMPTY, BYTES, ASSERTION, LOOK, GROUP, SEQUENCE, CHOICE, REPEAT };

    Kind                     kind      = EMPTY;
    TriggerStep::Kind        assertion = TriggerStep::TEXT_BEGIN;  // of ASSERTION and LOOK
    ByteSet                  bytes     = {};
    uint32_t                 group     = 0;  // from 1; 0: not one that is remembered
    uint32_t                 least     = 0;  // of REPEAT
    uint32_t                 most      = 0;
    bool                     greedy    = true;
    std::vector<TriggerNode> parts     = {};
};

constexpr uint32_t WITHOUT_END = UINT32_MAX;

struct TriggerSyntax {
    TriggerNode root;
    uint32_t    n_groups;
};

// Throws PYG_ERR_GRAMMAR.
TriggerSyntax trigger_syntax(const std::string & pattern);

}  // namespace pyg
