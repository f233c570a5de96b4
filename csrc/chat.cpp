// Chat templates and JSON-schema grammars, by upstream's llama-common.
#include "chat.h"

#include "deep_stack.hpp"
#include "handles.hpp"
#include "json-schema-to-grammar.h"

#include <algorithm>
#include <cstring>

namespace {

using pyg::fail;

char * owned_copy(const std::string & text) {
    char * copy = static_cast<char *>(std::malloc(text.size() + 1));
    if (!copy) {
        throw std::bad_alloc();
    }
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

std::string chosen_template(const pyg::Model & model, const char * chat_template) {
    const char * chosen = chat_template ? chat_template : llama_model_chat_template(model.raw, nullptr);
    if (!chosen) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s has no chat template: give one as chat_template", model.path.c_str());
    }
    return chosen;
}

// Upstream's parsers recurse with the text they read, a few kilobytes of stack for each byte in the worst case, so
// they run on a stack that suffices. What they throw becomes a failure of `code`.
template <class Body>
void with_recursion_over(size_t text_bytes, pyg_code code, const char * what, Body && body) {
    constexpr size_t STACKS_OF_A_REGEX = 4;
    pyg::with_stack_for(STACKS_OF_A_REGEX * text_bytes, [&] {
        try {
            body();
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & e) {
            throw fail(code, "%s: %s", what, e.what());
        }
    });
}

std::string render(const pyg::Model & model, const std::string & source, const char * messages_json,
                   bool add_generation_prompt) {
    const auto templates = common_chat_templates_init(model.raw, source);

    common_chat_templates_inputs inputs;
    inputs.messages              = common_chat_msgs_parse_oaicompat(common_json::parse(messages_json));
    inputs.add_generation_prompt = add_generation_prompt;
    inputs.use_jinja             = true;
    return common_chat_templates_apply(templates.get(), inputs).prompt;
}

}  // namespace

pyg_status pyg_chat_render(pyg_model * model, const char * chat_template, const char * messages_json,
                           bool add_generation_prompt, char ** out, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto        shared = pyg::shared_model(model);
        const std::string source = chosen_template(*shared, chat_template);
        std::string       text;
        with_recursion_over(std::max(source.size(), std::strlen(messages_json)), PYG_ERR_INVALID_PARAMETER,
                            "the chat template could not be rendered",
                            [&] { text = render(*shared, source, messages_json, add_generation_prompt); });
        if (text.find('\0') != std::string::npos) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the rendered chat holds a NUL character");
        }
        *out = owned_copy(text);
    });
}

pyg_status pyg_json_schema_to_grammar(const char * schema_json, char ** out, pyg_error * err) {
    return pyg::guard(err, [&] {
        std::string grammar;
        with_recursion_over(std::strlen(schema_json), PYG_ERR_GRAMMAR,
                            "the JSON schema cannot be turned into a grammar",
                            [&] { grammar = json_schema_to_grammar(common_json::parse(schema_json)); });
        *out = owned_copy(grammar);
    });
}

void pyg_string_free(char * string) { std::free(string); }
