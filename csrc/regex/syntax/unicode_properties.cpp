// Properties and case of characters, from the encoded tables.
#include "regex/syntax/char_classes.hpp"
#include "regex/syntax/unicode_tables.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pyg {

namespace {

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

uint32_t decode_number(const char *& encoded) {
    uint32_t value = 0;
    for (int shift = 0;; shift += 5) {
        const auto digit = static_cast<uint32_t>(std::strchr(ENCODED_DIGITS, *encoded++) - ENCODED_DIGITS);
        value |= (digit & 31) << shift;
        if (digit < 32) {
            return value;
        }
    }
}

void add_ranges(const char * encoded, Ranges & ranges) {
    for (uint32_t next = 0; *encoded;) {
        const uint32_t low  = next + decode_number(encoded);
        const uint32_t high = low + decode_number(encoded);
        ranges.emplace_back(low, high);
        next = high + 1;
    }
}

bool has_name(const char * names, const std::string & name) {
    return (";" + std::string(names) + ";").find(";" + name + ";") != std::string::npos;
}

bool find_property(const UnicodeProperty * table, const std::string & name, CharSet & set) {
    if (name.empty() || name.find(';') != std::string::npos) {
        return false;
    }
    for (; table->names; table++) {
        if (has_name(table->names, name)) {
            Ranges ranges;
            add_ranges(table->ranges, ranges);
            set = CharSet::of(std::move(ranges));
            return true;
        }
    }
    return false;
}

// Unions of categories: names, and the first letter of those in it (or "LC": Lu, Ll, Lt).
constexpr std::array<std::pair<const char *, const char *>, 8> GROUPS = {{
    {"L;Letter", "L"},
    {"LC;Cased_Letter", "LC"},
    {"M;Mark;Combining_Mark", "M"},
    {"N;Number", "N"},
    {"P;Punctuation;punct", "P"},
    {"S;Symbol", "S"},
    {"Z;Separator", "Z"},
    {"C;Other", "C"},
}};

bool is_in_group(const char * category, const char * group) {
    if (std::strcmp(group, "LC") == 0) {
        return category[0] == 'L' && std::strchr("ult", category[1]);
    }
    return category[0] == group[0];
}

bool find_category(const std::string & name, CharSet & set) {
    for (const auto & [names, group] : GROUPS) {
        if (has_name(names, name)) {
            Ranges ranges;
            for (const UnicodeProperty * each = UNICODE_CATEGORIES; each->names; each++) {
                if (is_in_group(each->names, group)) {
                    add_ranges(each->ranges, ranges);
                }
            }
            set = CharSet::of(std::move(ranges));
            return true;
        }
    }
    return find_property(UNICODE_CATEGORIES, name, set);
}

bool find_binary(const std::string & name, CharSet & set) {
    if (name == "Any") {
        set = CharSet::all();
        return true;
    }
    if (name == "ASCII") {
        set = CharSet::of({{0, 0x7F}});
        return true;
    }
    if (name == "Assigned") {
        find_category("Cn", set);
        set = complement(set);
        return true;
    }
    return find_property(UNICODE_BINARY_PROPERTIES, name, set);
}

}  // namespace

bool unicode_property(const std::string & name, CharSet & set) {
    const size_t equals = name.find('=');
    if (equals == std::string::npos) {
        return !name.empty() && name.find(';') == std::string::npos &&
               (find_category(name, set) || find_binary(name, set));
    }
    const std::string kind = name.substr(0, equals), value = name.substr(equals + 1);
    if (value.empty() || value.find(';') != std::string::npos) {
        return false;
    }
    if (kind == "General_Category" || kind == "gc") {
        return find_category(value, set);
    }
    if (kind == "Script" || kind == "sc") {
        return find_property(UNICODE_SCRIPTS, value, set);
    }
    if (kind == "Script_Extensions" || kind == "scx") {
        return find_property(UNICODE_SCRIPT_EXTENSIONS, value, set) || find_property(UNICODE_SCRIPTS, value, set);
    }
    return false;
}

namespace {

struct Fold {
    uint32_t folded, code_point;
    bool     operator<(const Fold & other) const {
        return folded != other.folded ? folded < other.folded : code_point < other.code_point;
    }
};

struct FoldTable {
    std::vector<Fold>                          by_folded;  // folded characters themselves included
    std::vector<std::pair<uint32_t, uint32_t>> folded_of;  // by character, of those that differ
};

FoldTable read_folds() {
    FoldTable table;
    uint32_t  next = 0;
    for (const char * encoded = UNICODE_CASE; *encoded;) {
        uint32_t       code_point = next + decode_number(encoded);
        const uint32_t n = decode_number(encoded) + 1, step = decode_number(encoded), zigzag = decode_number(encoded);
        const auto     difference = static_cast<uint32_t>(zigzag & 1 ? -static_cast<int32_t>((zigzag + 1) / 2)
                                                                     : static_cast<int32_t>(zigzag / 2));
        for (uint32_t i = 0; i < n; i++, code_point += step) {
            table.folded_of.emplace_back(code_point, code_point + difference);
            table.by_folded.push_back({code_point + difference, code_point});
            table.by_folded.push_back({code_point + difference, code_point + difference});
            next = code_point + 1;
        }
    }
    std::sort(table.by_folded.begin(), table.by_folded.end());
    std::sort(table.folded_of.begin(), table.folded_of.end());
    return table;
}

}  // namespace

CharSet in_any_case(const CharSet & set) {
    static const FoldTable table  = read_folds();
    Ranges                 ranges = set.ranges;
    const auto             add    = [&](uint32_t folded) {
        const auto first = std::lower_bound(table.by_folded.begin(), table.by_folded.end(), Fold{folded, 0});
        for (auto fold = first; fold != table.by_folded.end() && fold->folded == folded; ++fold) {
            ranges.emplace_back(fold->code_point, fold->code_point);
        }
    };
    for (const auto & [low, high] : set.ranges) {
        auto folded = std::lower_bound(table.folded_of.begin(), table.folded_of.end(), std::make_pair(low, 0u));
        for (; folded != table.folded_of.end() && folded->first <= high; ++folded) {
            add(folded->second);
        }
        auto same = std::lower_bound(table.by_folded.begin(), table.by_folded.end(), Fold{low, 0});
        for (; same != table.by_folded.end() && same->folded <= high; ++same) {
            ranges.emplace_back(same->code_point, same->code_point);
        }
    }
    return CharSet::of(std::move(ranges));
}

}  // namespace pyg
