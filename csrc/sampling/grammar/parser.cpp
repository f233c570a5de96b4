// Parses grammars with upstream's parser, which prints its error messages to stderr and crashes on some grammars, so
// these are rejected first.
#include "sampling/grammar/parser.hpp"

#include "boundary/guard.hpp"
#include "boundary/large_stack.hpp"
#include "llama-grammar.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace {

using pyg::fail;

constexpr int      MAX_NESTING = 256;        // upstream's parser recurses for each parenthesis,
constexpr int      MAX_CHAIN   = 2000;       // and its search for left recursion for each rule that starts with a rule,
constexpr uint64_t MAX_STEPS   = 1'000'000;  // revisiting rules
constexpr uint64_t MAX_COPIED  = 4'000'000;  // characters of literals and classes, copied for repetitions

pyg::Failure failure_at(const std::string & text, size_t offset, const std::string & reason) {
    const std::string before = text.substr(0, offset);
    const auto        line   = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t      column = offset - before.rfind('\n');  // npos + 1 is 0: the first line
    return fail(PYG_ERR_GRAMMAR, "the grammar has an error at line %zu, column %zu: %s", static_cast<size_t>(line),
                column, reason.c_str());
}

// Upstream's messages end with " at " and the rest of the text, which gives the position.
pyg::Failure parse_failure(const std::string & text, size_t rule_offset, const std::string & message) {
    for (size_t at = message.find(" at "); at != std::string::npos; at = message.find(" at ", at + 1)) {
        const size_t rest = message.size() - (at + std::strlen(" at "));
        if (rest <= text.size() && text.compare(text.size() - rest, rest, message, at + std::strlen(" at ")) == 0) {
            return failure_at(text, text.size() - rest, message.substr(0, at));
        }
    }
    return failure_at(text, rule_offset, message);
}

const char * skip_blank(const char * pos) {
    for (;;) {
        pos += std::strspn(pos, " \t\r\n");
        if (*pos != '#') {
            return pos;
        }
        pos += std::strcspn(pos, "\r\n");
    }
}

// Return the index after a literal or character class that starts at `i`; a backslash escapes the next character.
size_t skip_quoted(const std::string & text, size_t i, char closing) {
    for (i++; i < text.size() && text[i] != closing && text[i] != '\n'; i++) {
        i += text[i] == '\\';
    }
    return i;
}

// Return the largest number in the braces that start at `i`, and move `i` to their end.
uint64_t largest_in_braces(const std::string & text, size_t & i) {
    const size_t end     = std::min(text.find('}', i), text.size());
    uint64_t     largest = 0;
    while (i < end) {
        i       = std::min(text.find_first_of("0123456789", i), end);
        largest = std::max<uint64_t>(largest, i < end ? std::strtoull(text.c_str() + i, nullptr, 10) : 0);
        i       = std::min(text.find_first_not_of("0123456789", i), end);
    }
    return largest;
}

// For "{5,2}" upstream would create rules until no memory is left.
void require_possible_repetition(const std::string & text, size_t brace) {
    char *       end     = nullptr;
    const char * numbers = skip_blank(text.c_str() + brace + 1);
    const auto   least   = std::strtoull(numbers, &end, 10);
    const char * comma   = skip_blank(end);
    if (end == numbers || *comma != ',') {
        return;
    }
    const char * second = skip_blank(comma + 1);
    const auto   most   = std::strtoull(second, &end, 10);
    if (end != second && most < least) {
        throw failure_at(text, brace, "a repetition's maximum is less than its minimum");
    }
}

// Reject grammars for which upstream would recurse too deeply or copy too much.
void require_modest(const std::string & text) {
    int      depth    = 0;
    size_t   begin    = 0;  // of the last literal or class
    size_t   n_quoted = 0;  // its characters, while a repetition may follow
    uint64_t n_copied = 0;
    for (size_t i = 0; i < text.size(); i++) {
        switch (text[i]) {
        case '"':
        case '[':
            begin    = i;
            i        = skip_quoted(text, i, text[i] == '"' ? '"' : ']');
            n_quoted = std::min(i, text.size()) - begin;
            break;
        case '{':
            require_possible_repetition(text, i);
            n_copied += n_quoted * std::min(largest_in_braces(text, i), MAX_COPIED);
            break;
        case '#':
            i = std::min(text.find('\n', i), text.size());
            break;
        case '(':
            depth++;
            n_quoted = 0;
            break;
        case ')':
            depth--;
            n_quoted = 0;
            break;
        case ' ':
        case '\t':
        case '\r':
        case '\n':
            break;
        default:
            n_quoted = 0;
        }
        if (depth > MAX_NESTING) {
            throw failure_at(text, i, "parentheses are nested too deeply");
        }
        if (n_copied > MAX_COPIED) {
            throw failure_at(text, begin, "this repeats something long too many times: make it a rule of its own");
        }
    }
}

void parse_rules(llama_grammar_parser & parser, const std::string & text) {
    const char * const start = text.c_str();
    const char *       pos   = skip_blank(start);
    while (*pos) {
        const size_t rule_offset = static_cast<size_t>(pos - start);
        try {
            pos = parser.parse_rule(pos);
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & e) {
            throw parse_failure(text, rule_offset, e.what());
        }
    }
}

void require_defined(const llama_grammar_parser & parser) {
    for (const auto & [name, id] : parser.symbol_ids) {
        if (id >= parser.rules.size() || parser.rules[id].empty()) {
            throw fail(PYG_ERR_GRAMMAR, "the grammar uses the rule \"%s\" but never defines it", name.c_str());
        }
    }
}

// Upstream's search for left recursion, visiting each rule once. It also computes how many steps upstream would take.
class LeftWalk {
  public:
    explicit LeftWalk(const llama_grammar_parser & parser) : parser_(parser), seen_(parser.rules.size()) {}

    void require_finite() {
        for (uint32_t rule = 0; rule < seen_.size(); rule++) {
            visit(rule, 0);
        }
    }

  private:
    struct Seen {
        bool     started      = false;
        bool     done         = false;
        bool     may_be_empty = false;
        uint64_t steps        = 1;
    };

    const Seen & visit(uint32_t rule, int depth) {
        Seen & seen = seen_[rule];
        if (seen.done) {
            return seen;
        }
        if (seen.started) {
            throw fail(PYG_ERR_GRAMMAR, "left recursion: the rule \"%s\" begins with itself", name(rule).c_str());
        }
        if (depth > MAX_CHAIN) {
            throw fail(PYG_ERR_GRAMMAR, "a chain of more than %d rules, each beginning with the next, ends in \"%s\"",
                       MAX_CHAIN, name(rule).c_str());
        }
        seen.started  = true;
        bool leftmost = true;  // everything before this element may be empty
        for (const llama_grammar_element & element : parser_.rules[rule]) {
            if (element.type == LLAMA_GRETYPE_END || element.type == LLAMA_GRETYPE_ALT) {
                seen.may_be_empty = seen.may_be_empty || leftmost;
                leftmost          = true;
            } else if (element.type == LLAMA_GRETYPE_RULE_REF && leftmost) {
                const Seen & other = visit(element.value, depth + 1);
                seen.steps += other.steps;
                leftmost = other.may_be_empty;
            } else {
                leftmost = false;
            }
            if (seen.steps > MAX_STEPS) {
                throw fail(PYG_ERR_GRAMMAR, "the rule \"%s\" can begin in too many ways", name(rule).c_str());
            }
        }
        seen.done = true;
        return seen;
    }

    std::string name(uint32_t rule) const {
        const auto & ids   = parser_.symbol_ids;
        const auto   found = std::find_if(ids.begin(), ids.end(), [&](const auto & id) { return id.second == rule; });
        return found == ids.end() ? "?" : found->first;
    }

    const llama_grammar_parser & parser_;
    std::vector<Seen>            seen_;
};

// Parse `text` and check that every rule is defined and none is left-recursive.
llama_grammar_parser parsed_grammar(const llama_vocab * vocab, const std::string & text, const std::string & root) {
    require_modest(text);
    llama_grammar_parser parser(vocab);
    pyg::with_stack_for(text.size(), [&] { parse_rules(parser, text); });  // token names are tokenized
    require_defined(parser);
    if (parser.symbol_ids.find(root) == parser.symbol_ids.end()) {
        throw fail(PYG_ERR_GRAMMAR, "the grammar has no rule \"%s\" to start from", root.c_str());
    }
    LeftWalk(parser).require_finite();
    return parser;
}

// --- conversion ------------------------------------------------------------------------------------------------

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

// Read the character set that starts at `i` and move `i` past it.
pyg::CharSet read_chars(const llama_grammar_rule & rule, size_t & i) {
    const llama_gretype type = rule[i].type;
    Ranges              ranges;
    do {
        const uint32_t low = std::min(rule[i].value, pyg::LAST_CODE_POINT);
        if (rule[i].type == LLAMA_GRETYPE_CHAR_ANY) {
            ranges.emplace_back(0, pyg::LAST_CODE_POINT);
        } else if (rule[i + 1].type == LLAMA_GRETYPE_CHAR_RNG_UPPER) {
            ranges.emplace_back(low, std::min(rule[i + 1].value, pyg::LAST_CODE_POINT));
            i++;
        } else {
            ranges.emplace_back(low, low);
        }
        i++;
    } while (rule[i].type == LLAMA_GRETYPE_CHAR_ALT);
    const pyg::CharSet set = pyg::CharSet::of(std::move(ranges));
    return type == LLAMA_GRETYPE_CHAR_NOT ? pyg::complement(set) : set;
}

// Terminals are written as tokens beyond every vocabulary.
pyg::GrammarSymbol token_symbol(const pyg::GrammarRules & rules, uint32_t token_id) {
    const uint32_t terminal = token_id - pyg::FIRST_TERMINAL_TOKEN;
    return token_id >= pyg::FIRST_TERMINAL_TOKEN && terminal < rules.terminals.size()
               ? pyg::GrammarSymbol{pyg::GrammarSymbol::TERMINAL, terminal}
               : pyg::GrammarSymbol{pyg::GrammarSymbol::TOKEN, token_id};
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
            rules.symbols.push_back(token_symbol(rules, rule[i++].value));
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

GrammarRules parse_grammar(const llama_vocab * vocab, const std::string & text, const std::string & root) {
    GrammarRules rules;
    SplitGrammar split                = split_terminals(text);
    rules.terminals                   = std::move(split.terminals);
    const llama_grammar_parser parser = parsed_grammar(vocab, split.text, root);
    for (const llama_grammar_rule & rule : parser.rules) {
        add_rule(rules, rule);
    }
    rules.root = parser.symbol_ids.at(root);
    return rules;
}

}  // namespace pyg
