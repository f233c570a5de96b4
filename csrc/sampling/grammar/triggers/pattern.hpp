// Regular expressions that trigger a lazy grammar, matched in linear time. std::regex backtracks, which takes
// exponential time for some patterns, and recurses for each character.
#pragma once

#include "sampling/grammar/triggers/regex.hpp"

#include <string>

namespace pyg {

// Immutable.
class TriggerPattern {
  public:
    // An ECMAScript regular expression over bytes, without back references. PYG_ERR_GRAMMAR.
    explicit TriggerPattern(const std::string & pattern);

    // Start of the grammar in `text`: the first non-empty group of the first match, or else the match itself; npos if
    // there is no match.
    size_t find(const std::string & text) const;

  private:
    RegexProgram program_;
    ByteSet      first_;               // bytes a match may start with
    bool         may_start_anywhere_;  // a match may be empty or start with an assertion
};

}  // namespace pyg
