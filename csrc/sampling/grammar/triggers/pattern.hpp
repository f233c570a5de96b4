// Regular expressions that start a lazy grammar. The standard library's try one way after the other, which for some
// patterns takes longer than anybody waits, and recurse for each; here all ways are followed at once, so that a text
// takes a time in proportion to its length.
#pragma once

#include "sampling/grammar/triggers/program.hpp"

#include <string>

namespace pyg {

// Immutable.
class TriggerPattern {
  public:
    // A regular expression of ECMAScript, for bytes, without back references. Throws PYG_ERR_GRAMMAR.
    explicit TriggerPattern(const std::string & pattern);

    // Where the grammar begins in `text`: at the first nonempty group of the first match, else at the match; npos:
    // nowhere.
    size_t find(const std::string & text) const;

  private:
    RegexProgram program_;
    ByteSet      first_;               // the bytes a match may begin with
    bool         may_start_anywhere_;  // a match may be empty, or needs to look at its place
};

}  // namespace pyg
