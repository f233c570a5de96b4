// Sets of members' names that keywords speak of: some names, and all that match some patterns.
#pragma once

#include "regex/languages.hpp"
#include "schema/keywords/keywords.hpp"

#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pyg {

struct NameSet {
    std::vector<NameId>   names;     // sorted
    std::vector<Language> patterns;  // sorted
};

class NameSets {
  public:
    NameSets(Names & names, Languages & languages) : names_(names), languages_(languages) {}

    // Equal sets are the same object.
    const NameSet & of(std::vector<NameId> names, std::vector<Language> patterns);
    const NameSet & pattern(const Schema & schema, const std::string & pattern);

    bool     contains(const NameSet & set, NameId name);
    bool     contains(Language language, NameId name);
    Language language(const NameSet & set);
    Language text(NameId name);

    const Names & names() const { return names_; }
    Languages &   languages() { return languages_; }

  private:
    Names &                                                                  names_;
    Languages &                                                              languages_;
    std::map<std::pair<std::vector<NameId>, std::vector<Language>>, NameSet> all_;
    std::unordered_map<const NameSet *, Language>                            language_of_;
    std::unordered_map<std::string, const NameSet *>                         of_pattern_;
    std::unordered_map<uint64_t, bool>                                       contains_;  // (language, name)
};

}  // namespace pyg
