// Sets of scalar JSON values that an array has so far, or of an object's names, and languages without them: for items
// that must differ, and for names that count.
#pragma once

#include "sampling/grammar/steps/read_texts.hpp"
#include "schema/shapes.hpp"

#include <map>
#include <vector>

namespace pyg {

enum class ScalarKind : uint32_t { STRING, NUMBER, LITERAL };

class ValueSets {
  public:
    static constexpr uint32_t EMPTY = 0;

    // `text`: of a string or a spelled number, in `texts`; of a literal, its index.
    uint32_t with(uint32_t set, ScalarKind kind, uint32_t text);

    bool has_literal(uint32_t set, uint32_t literal) const;

    // The texts of a language that spell none of the set's values.
    Language without(Languages & languages, Language language, ScalarKind kind, uint32_t set, const ReadTexts & texts);

  private:
    struct Value {
        ScalarKind kind;
        uint32_t   text;

        bool operator<(const Value & other) const { return kind != other.kind ? kind < other.kind : text < other.text; }
    };

    std::vector<std::vector<Value>>                   sets_ = {{}};
    std::map<std::vector<Value>, uint32_t>            ids_;
    std::map<std::pair<uint64_t, uint32_t>, Language> without_;  // by (language, set), kind
};

}  // namespace pyg
