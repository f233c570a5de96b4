// Token masks of JSON schemas and regular expressions: the shared masks of free text against each token on its own.
#include "boundary/guard.hpp"
#include "sampling/grammar/cache.hpp"
#include "tests/support/testing.hpp"

#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

using pyg::GrammarMatcher;
using Random = std::mt19937;

struct Freed {
    void operator()(llama_model * model) const { llama_model_free(model); }
};

using Model = std::unique_ptr<llama_model, Freed>;

const char * const GRAMMARS[] = {
    R"(root ::= %json {"type": "string"})",
    R"(root ::= %json {"type": "string", "minLength": 3, "maxLength": 9})",
    R"(root ::= %json {"type": "string", "maxLength": 300})",
    R"(root ::= %json {"pattern": "^[a-z]+(-[a-z]+)*$"})",
    R"(root ::= %json {"pattern": "^.+@.+$", "maxLength": 40})",
    R"(root ::= %json {"pattern": "the|an", "minLength": 5})",
    R"(root ::= %json {"pattern": "^(?!the).*$"})",
    R"(root ::= %json {"pattern": "^\\p{Lu}\\p{Ll}+$"})",
    R"(root ::= %json {"format": "date-time"})",
    R"(root ::= %json {"enum": ["the", "then", "a \"b\"", "\n", 5, null, [1, {}]]})",
    R"(root ::= %json {"type": "number", "minimum": 0.5, "maximum": 1000, "multipleOf": 0.25})",
    R"(root ::= %json {})",
    R"(root ::= %json {"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b", "c", 1, 2]}, "minItems": 3})",
    R"(root ::= %json {"type": "array", "uniqueItems": true, "items": {"type": "string", "maxLength": 2}, "minItems": 2})",
    R"(root ::= %json {"type": "array", "contains": {"type": "null"}, "minContains": 2, "maxContains": 3, "maxItems": 5})",
    R"(root ::= %json {"properties": {"a": {"type": "boolean"}, "the": {"type": "null"}}, "required": ["the"]})",
    R"(root ::= %json[any-order,extra-members,any-spelling] {"properties": {"a": {}, "the": {"type": "null"}},
        "required": ["the"], "patternProperties": {"^x": {"type": "integer"}}, "maxProperties": 3})",
    R"(root ::= %json[any-order] {"type": "object", "minProperties": 3, "maxProperties": 4, "propertyNames": {"maxLength": 2},
        "additionalProperties": {"type": "null"}})",
    R"(root ::= %json[any-order] {"type": "object", "not": {"additionalProperties": {"type": "null"}}, "maxProperties": 2})",
    R"(root ::= %json {"$defs": {"t": {"type": "object", "properties": {"l": {"$ref": "#/$defs/t"}, "v": {"type": "string"}},
        "required": ["v"]}}, "$ref": "#/$defs/t"})",
    R"(root ::= %json {"oneOf": [{"type": "object", "properties": {"k": {"const": "the"}, "x": {"type": "null"}},
        "required": ["k"]}, {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k", "x"]}]})",
    R"(root ::= %regex "[a-z ]{1,40}\\.")",
    R"(root ::= %regex "(the|a).*")",
    R"(root ::= "the " %json {"type": "string", "pattern": "^[a-e]*$"} " and " (%regex "[0-9]+" | [a-z]+) "!")",
};

std::string shown(const pyg::TokenTrie & trie, const std::vector<int32_t> & token_ids) {
    std::string text;
    for (const int32_t token_id : token_ids) {
        text += trie.text(token_id);
    }
    return text;
}

// Each state's mask has exactly the tokens that are allowed one by one.
int follow(const std::shared_ptr<pyg::CompiledGrammar> & grammar, const char * text, Random & random) {
    GrammarMatcher         matcher(grammar);
    const pyg::TokenTrie & trie = grammar->trie();
    std::vector<int32_t>   taken;
    for (int step = 0; step < 14; step++) {
        const auto           mask = matcher.mask();
        std::vector<int32_t> allowed;
        mask->for_each([&](int32_t id) { allowed.push_back(id); });
        // Of large vocabularies, every 16th token.
        const int32_t stride = trie.n_vocab() > 10'000 ? 16 : 1;
        for (int32_t id = static_cast<int32_t>(random() % static_cast<uint32_t>(stride)); id < trie.n_vocab();
             id += stride) {
            const bool alone = matcher.allows(id);
            if (alone != mask->has(id)) {
                std::fprintf(stderr, "%s\nafter \"%s\": token %d \"%s\" alone: %d\n", text, shown(trie, taken).c_str(),
                             id, trie.text(id).c_str(), alone);
            }
            CHECK(alone == mask->has(id));
        }
        CHECK(!allowed.empty() || matcher.is_complete());  // no dead ends
        if (allowed.empty()) {
            return step;
        }
        taken.push_back(allowed[random() % allowed.size()]);
        CHECK(matcher.accept(taken.back()));
    }
    // Taken back, the same text leads to the same mask.
    const auto mask = matcher.mask();
    matcher.rollback(5);
    for (size_t i = taken.size() - 5; i < taken.size(); i++) {
        CHECK(matcher.accept(taken[i]));
    }
    CHECK(matcher.mask() == mask);
    return 14;
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc > 1);
    for (int i = 1; i < argc; i++) {
        llama_model_params params = llama_model_default_params();
        params.vocab_only         = true;
        const Model model(llama_model_load_from_file(argv[i], params));
        CHECK(model);
        pyg::GrammarCache   cache;
        Random              random(static_cast<uint32_t>(i));
        int                 n_states = 0;
        const llama_vocab * vocab    = llama_model_get_vocab(model.get());
        const std::string   special  = cache.get(vocab, "root ::= \"a\"", "root")->trie().text(llama_vocab_bos(vocab));
        // A special token that the grammar mentions matches as text, which may be longer than other tokens.
        const std::string mentions = "root ::= %json {\"type\": \"string\", \"maxLength\": 5} | \"" + special + "\"";
        std::vector<std::string> grammars(std::begin(GRAMMARS), std::end(GRAMMARS));
        grammars.push_back(mentions);
        for (const std::string & text : grammars) {
            pyg_error error;
            CHECK_OK(pyg::guard(&error,
                                [&] {
                                    const auto grammar = cache.get(vocab, text, "root");
                                    for (int walk = 0; walk < 3; walk++) {
                                        n_states += follow(grammar, text.c_str(), random);
                                    }
                                }),
                     error);
        }
        std::printf("%d states\n", n_states);
        CHECK(n_states > 300);
    }
    return 0;
}
