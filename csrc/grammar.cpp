#include "grammar.hpp"

#include "guard.hpp"
#include "llama-grammar.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace {

using pyg::fail;

constexpr int MAX_NESTING = 256;  // upstream's parser recurses for each parenthesis

struct Place {
    size_t line;
    size_t column;
};

Place place_of(const std::string & text, size_t offset) {
    const size_t line_start = text.rfind('\n', offset ? offset - 1 : 0);
    const auto   n_lines    = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
    const bool   first_line = n_lines == 0 || line_start == std::string::npos;
    return {static_cast<size_t>(n_lines) + 1, first_line ? offset + 1 : offset - line_start};
}

pyg::Failure failure_at(const std::string & text, size_t offset, const std::string & reason) {
    const Place place = place_of(text, offset);
    return fail(PYG_ERR_GRAMMAR, "the grammar is wrong at line %zu, column %zu: %s", place.line, place.column,
                reason.c_str());
}

// Upstream's messages end with " at " and the whole rest of the text: that rest is the place.
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

void require_shallow(const std::string & text) {
    int depth = 0;
    for (size_t i = 0; i < text.size(); i++) {
        depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
        if (depth > MAX_NESTING) {
            throw failure_at(text, i, "parentheses are nested too deeply");
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
        } catch (const std::exception & e) {
            throw parse_failure(text, rule_offset, e.what());
        }
    }
}

void require_defined(const llama_grammar_parser & parser) {
    for (const auto & [name, id] : parser.symbol_ids) {
        if (id >= parser.rules.size() || parser.rules[id].empty()) {
            throw fail(PYG_ERR_GRAMMAR, "the grammar uses the rule \"%s\" and never defines it", name.c_str());
        }
    }
}

}  // namespace

namespace pyg {

void require_grammar(const llama_vocab * vocab, const char * text, const char * root) {
    const std::string source = text;
    require_shallow(source);
    llama_grammar_parser parser(vocab);
    parse_rules(parser, source);
    require_defined(parser);
    if (parser.symbol_ids.find(root) == parser.symbol_ids.end()) {
        throw fail(PYG_ERR_GRAMMAR, "the grammar has no rule \"%s\", where generation would start", root);
    }
}

}  // namespace pyg
