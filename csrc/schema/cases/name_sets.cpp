#include "schema/cases/name_sets.hpp"

#include "boundary/guard.hpp"

#include <algorithm>

namespace pyg {

const NameSet & NameSets::of(std::vector<NameId> names, std::vector<Language> patterns) {
    for (auto * ids : {&names, &patterns}) {
        std::sort(ids->begin(), ids->end());
        ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
    }
    const auto [place, is_new] = all_.emplace(std::make_pair(names, patterns), NameSet{});
    if (is_new) {
        place->second = {place->first.first, place->first.second};
    }
    return place->second;
}

const NameSet & NameSets::pattern(const Schema & schema, const std::string & pattern) {
    const NameSet *& set = of_pattern_[pattern];
    if (set == nullptr) {
        try {
            set = &of({}, {languages_.regex(pattern, RegexSyntax::ECMASCRIPT, false)});
        } catch (const Failure & failure) {
            throw fail(failure.code, "%s/patternProperties: %.200s: %s", schema.json->pointer().c_str(),
                       pattern.c_str(), failure.message.c_str());
        }
    }
    return *set;
}

bool NameSets::contains(const NameSet & set, NameId name) {
    return std::binary_search(set.names.begin(), set.names.end(), name) ||
           std::any_of(set.patterns.begin(), set.patterns.end(), [&](Language each) { return contains(each, name); });
}

bool NameSets::contains(Language language, NameId name) {
    if (language == Languages::ANYTHING || language == Languages::NOTHING) {
        return language == Languages::ANYTHING;
    }
    const uint64_t key   = static_cast<uint64_t>(language) << 32 | name;
    const auto     found = contains_.find(key);
    if (found != contains_.end()) {
        return found->second;
    }
    const bool result = languages_.contains(language, names_.text(name));
    contains_.emplace(key, result);
    return result;
}

Language NameSets::text(NameId name) { return languages_.text(names_.text(name)); }

Language NameSets::language(const NameSet & set) {
    const auto found = language_of_.find(&set);
    if (found != language_of_.end()) {
        return found->second;
    }
    std::vector<Language> all = set.patterns;
    for (const NameId name : set.names) {
        all.push_back(text(name));
    }
    const Language result = languages_.any_of(all);
    language_of_.emplace(&set, result);
    return result;
}

}  // namespace pyg
