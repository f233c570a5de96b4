#include "sampling/grammar/rules.hpp"

#include "llama-grammar.h"
#include "sampling/grammar/parser.hpp"

#include <algorithm>

namespace {

constexpr uint32_t LAST_CODE_POINT = 0x10FFFF;

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

Ranges joined(Ranges ranges) {
    std::sort(ranges.begin(), ranges.end());
    Ranges result;
    for (const auto & [low, high] : ranges) {
        if (low > high) {
            continue;
        }
        if (!result.empty() && low <= result.back().second + 1) {
            result.back().second = std::max(result.back().second, high);
        } else {
            result.emplace_back(low, high);
        }
    }
    return result;
}

Ranges complement(const Ranges & ranges) {
    Ranges   result;
    uint32_t next = 0;
    for (const auto & [low, high] : ranges) {
        if (low > next) {
            result.emplace_back(next, low - 1);
        }
        next = high + 1;
    }
    if (next <= LAST_CODE_POINT) {
        result.emplace_back(next, LAST_CODE_POINT);
    }
    return result;
}

bool continues_set(const llama_grammar_element & element) { return element.type == LLAMA_GRETYPE_CHAR_ALT; }

// Read the character set that starts at `i` and move `i` past it.
pyg::CharSet read_chars(const llama_grammar_rule & rule, size_t & i) {
    const llama_gretype type = rule[i].type;
    Ranges              ranges;
    do {
        const uint32_t low = std::min(rule[i].value, LAST_CODE_POINT);
        if (rule[i].type == LLAMA_GRETYPE_CHAR_ANY) {
            ranges.emplace_back(0, LAST_CODE_POINT);
        } else if (rule[i + 1].type == LLAMA_GRETYPE_CHAR_RNG_UPPER) {
            ranges.emplace_back(low, std::min(rule[i + 1].value, LAST_CODE_POINT));
            i++;
        } else {
            ranges.emplace_back(low, low);
        }
        i++;
    } while (continues_set(rule[i]));
    Ranges result = joined(std::move(ranges));
    return {type == LLAMA_GRETYPE_CHAR_NOT ? complement(result) : result};
}

// Add one rule's alternatives to `rules`.
void add_rule(pyg::GrammarRules & rules, const llama_grammar_rule & rule) {
    std::vector<uint32_t> alternatives = {static_cast<uint32_t>(rules.symbols.size())};
    for (size_t i = 0; i < rule.size();) {
        switch (rule[i].type) {
        case LLAMA_GRETYPE_END:
            rules.symbols.push_back({pyg::GrammarSymbol::END, 0});
            rules.alternatives.push_back(std::move(alternatives));
            return;
        case LLAMA_GRETYPE_ALT:
            rules.symbols.push_back({pyg::GrammarSymbol::END, 0});
            alternatives.push_back(static_cast<uint32_t>(rules.symbols.size()));
            i++;
            break;
        case LLAMA_GRETYPE_RULE_REF:
            rules.symbols.push_back({pyg::GrammarSymbol::RULE, rule[i++].value});
            break;
        case LLAMA_GRETYPE_TOKEN:
            rules.symbols.push_back({pyg::GrammarSymbol::TOKEN, rule[i++].value});
            break;
        case LLAMA_GRETYPE_TOKEN_NOT:
            rules.symbols.push_back({pyg::GrammarSymbol::NOT_TOKEN, rule[i++].value});
            break;
        default:
            rules.symbols.push_back({pyg::GrammarSymbol::CHARS, static_cast<uint32_t>(rules.char_sets.size())});
            rules.char_sets.push_back(read_chars(rule, i));
        }
    }
}

}  // namespace

namespace pyg {

bool CharSet::meets(uint32_t low, uint32_t high) const {
    const auto first = std::lower_bound(ranges.begin(), ranges.end(), low,
                                        [](const auto & range, uint32_t value) { return range.second < value; });
    return first != ranges.end() && first->first <= high;
}

GrammarRules parse_grammar(const llama_vocab * vocab, const std::string & text, const std::string & root) {
    const llama_grammar_parser parser = parsed_grammar(vocab, text, root);
    GrammarRules               rules;
    for (const llama_grammar_rule & rule : parser.rules) {
        add_rule(rules, rule);
    }
    rules.root = parser.symbol_ids.at(root);
    return rules;
}

}  // namespace pyg
