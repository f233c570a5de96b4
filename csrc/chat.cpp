// Chat templates and JSON-schema grammars, by upstream's llama-common.
#include "chat.h"

#include "handles.hpp"
#include "json-schema-to-grammar.h"

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

std::string render(const pyg::Model & model, const char * chat_template, const char * messages_json,
                   bool add_generation_prompt) {
    const auto templates = common_chat_templates_init(model.raw, chosen_template(model, chat_template));

    common_chat_templates_inputs inputs;
    inputs.messages              = common_chat_msgs_parse_oaicompat(common_json::parse(messages_json));
    inputs.add_generation_prompt = add_generation_prompt;
    inputs.use_jinja             = true;
    return common_chat_templates_apply(templates.get(), inputs).prompt;
}

}  // namespace

pyg_status pyg_chat_render(pyg_model * model, const char * chat_template, const char * messages_json,
                           bool add_generation_prompt, char ** out, pyg_error * err) {
    return pyg::with(model, err, [&](pyg_model & handle) {
        try {
            *out = owned_copy(render(*handle.model, chat_template, messages_json, add_generation_prompt));
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & e) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the chat template could not be rendered: %s", e.what());
        }
    });
}

pyg_status pyg_json_schema_to_grammar(const char * schema_json, char ** out, pyg_error * err) {
    return pyg::guard(err, [&] {
        try {
            *out = owned_copy(json_schema_to_grammar(common_json::parse(schema_json)));
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & e) {
            throw fail(PYG_ERR_GRAMMAR, "the JSON schema cannot be turned into a grammar: %s", e.what());
        }
    });
}

void pyg_string_free(char * string) { std::free(string); }
