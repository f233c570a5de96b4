#include "sampling/grammar/steps/value_sets.hpp"

#include "regex/numbers/numbers.hpp"

#include <algorithm>
#include <utility>

namespace pyg {

uint32_t ValueSets::with(uint32_t set, ScalarKind kind, uint32_t text) {
    std::vector<Value> values = sets_[set];
    const Value        value  = {kind, text};
    values.insert(std::lower_bound(values.begin(), values.end(), value), value);
    const auto known = ids_.find(values);
    if (known != ids_.end()) {
        return known->second;
    }
    sets_.push_back(values);
    return ids_.emplace(std::move(values), static_cast<uint32_t>(sets_.size() - 1)).first->second;
}

bool ValueSets::has_literal(uint32_t set, uint32_t literal) const {
    return std::any_of(sets_[set].begin(), sets_[set].end(),
                       [&](const Value & value) { return value.kind == ScalarKind::LITERAL && value.text == literal; });
}

Language ValueSets::without(Languages & languages, Language language, ScalarKind kind, uint32_t set,
                            const ReadTexts & texts) {
    if (set == EMPTY || language == Languages::NOTHING) {
        return language;
    }
    const auto key   = std::make_pair(static_cast<uint64_t>(language) << 32 | set, static_cast<uint32_t>(kind));
    const auto known = without_.find(key);
    if (known != without_.end()) {
        return known->second;
    }
    std::vector<Language> taken;
    for (const Value & value : sets_[set]) {
        if (value.kind == kind && value.text != ReadTexts::OTHER) {
            const std::string text = texts.utf8(value.text);
            taken.push_back(kind == ScalarKind::NUMBER ? numbers_equal_to(languages, text) : languages.text(text));
        }
    }
    const Language result = languages.without(language, languages.any_of(std::move(taken)));
    return without_.emplace(key, languages.is_empty(result) ? Languages::NOTHING : result).first->second;
}

}  // namespace pyg
