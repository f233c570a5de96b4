// Chat templates: messages to a prompt, with upstream's llama-common.
#include "chat/chat.hpp"
#include "llama.h"
#include "sampling.h"

#include <algorithm>
#include <cstring>

namespace {

using pyg::fail;
using pyg::with_template_limits;

constexpr const char * NOT_READABLE = "the chat template could not be read";
constexpr const char * NOT_RENDERED = "the chat template could not be rendered";

// Template sources: the override, or the model's templates.
std::vector<const char *> sources_of(const pyg::Model & model, const char * chat_template) {
    if (chat_template) {
        return {chat_template};
    }
    std::vector<const char *> sources;
    for (const char * name : {static_cast<const char *>(nullptr), "tool_use"}) {
        if (const char * own = llama_model_chat_template(model.raw, name)) {
            sources.push_back(own);
        }
    }
    if (sources.empty()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s has no chat template: give one as chat_template", model.path.c_str());
    }
    return sources;
}

// Length of the longest text that upstream may recurse over.
size_t longest_template(const pyg::Model & model, const char * chat_template) {
    size_t n = 0;
    for (const char * source : sources_of(model, chat_template)) {
        n = std::max(n, std::strlen(source));
    }
    return n;
}

common_chat_templates_ptr read_templates(const pyg::Model & model, const char * chat_template) {
    // Upstream's own reader loses the reason of a failure.
    for (const char * source : sources_of(model, chat_template)) {
        pyg::require_valid_template(source);
    }
    return common_chat_templates_init(model.raw, chat_template ? chat_template : "");
}

bool thinks(const common_chat_templates & templates) {
    try {
        return common_chat_templates_support_enable_thinking(&templates);
    } catch (const std::exception &) {
        return false;  // the template rejects the messages upstream tests it with
    }
}

// Grammar that upstream generates for this template with a required tool call; "" if the template has no tool calls.
std::string grammar_of_call(const common_chat_templates & templates, const std::string & parameters) {
    common_chat_msg user;
    user.role    = "user";
    user.content = "test";
    common_chat_templates_inputs inputs;
    inputs.messages    = {user};
    inputs.tools       = {{"test", "test", parameters}};
    inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    try {
        return common_chat_templates_apply(&templates, inputs).grammar;
    } catch (const std::exception &) {
        return "";
    }
}

// Format of a tool call's arguments in this template, if upstream's grammar follows their schema: "as one" JSON object
// or "one by one"; otherwise "".
std::string arguments_of(const common_chat_templates & templates) {
    const auto keeps = [](const std::string & grammar) { return grammar.find("pyggml-schema") != std::string::npos; };
    if (keeps(grammar_of_call(templates, R"({"type": "object", "properties": {}, "const": ["pyggml-schema"]})"))) {
        return "as one";
    }
    const std::string member =
        R"({"type": "object", "properties": {"x": {"type": "integer", "const": ["pyggml-schema"]}})";
    const std::string optional = grammar_of_call(templates, member + "}");
    const std::string required = grammar_of_call(templates, member + R"(, "required": ["x"]})");
    return keeps(required) && required != optional ? "one by one" : "";
}

common_json info(const common_chat_templates & templates) {
    common_json abilities = common_json::object();
    for (const auto & [name, able] : common_chat_templates_get_caps(&templates)) {
        abilities[name] = able;
    }
    const std::string arguments       = arguments_of(templates);
    abilities["supports_thinking"]    = thinks(templates);
    abilities["supports_tool_format"] = !arguments.empty();
    return {{"source", common_chat_templates_source(&templates)}, {"abilities", abilities}, {"arguments", arguments}};
}

std::string text_or_empty(const common_json & request, const char * key) {
    return request.contains(key) && !request.at(key).is_null() ? request.at(key).get<std::string>() : std::string();
}

common_chat_templates_inputs inputs_of(const common_json & request) {
    common_chat_templates_inputs inputs;
    inputs.use_jinja = true;
    inputs.messages  = common_chat_msgs_parse_oaicompat(request.at("messages"));
    if (request.contains("tools")) {
        inputs.tools = common_chat_tools_parse_oaicompat(request.at("tools"));
    }
    inputs.tool_choice            = common_chat_tool_choice_parse_oaicompat(request.at("tool_choice"));
    inputs.parallel_tool_calls    = request.at("parallel_tool_calls").get<bool>();
    inputs.add_generation_prompt  = request.at("add_generation_prompt").get<bool>();
    inputs.continue_final_message = common_chat_continuation_parse(request.at("continue_final_message"));
    inputs.enable_thinking        = request.at("enable_thinking").get<bool>();
    inputs.reasoning_format       = common_reasoning_format_from_name(request.at("reasoning_format"));
    inputs.json_schema            = text_or_empty(request, "json_schema");
    inputs.grammar                = text_or_empty(request, "grammar");
    if (request.contains("template_kwargs")) {
        for (const auto & [name, value] : request.at("template_kwargs").items()) {
            inputs.chat_template_kwargs[name] = value.dump();
        }
    }
    // Otherwise upstream leaves it undefined, which some templates test for.
    inputs.chat_template_kwargs["add_generation_prompt"] = "false";
    return inputs;
}

bool is_normal(const llama_vocab * vocab, llama_token id) {
    return (llama_vocab_get_attr(vocab, id) & LLAMA_TOKEN_ATTR_NORMAL) != 0;
}

// Triggers of a lazy grammar, as samplers take them. A word that is a special token triggers as that token; a word that
// only happens to be a token may also be spelled with others.
common_json triggers_of(const common_chat_params & params, const llama_vocab * vocab) {
    common_json patterns = common_json::array(), token_ids = common_json::array();
    for (const common_grammar_trigger & trigger : params.grammar_triggers) {
        const auto ids = common_tokenize(vocab, trigger.value, false, true);
        switch (trigger.type) {
        case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN:
            token_ids.push_back(trigger.token);
            break;
        case COMMON_GRAMMAR_TRIGGER_TYPE_WORD:
            if (ids.size() == 1 && !is_normal(vocab, ids[0])) {
                token_ids.push_back(ids[0]);
            } else {
                patterns.push_back(regex_escape(trigger.value));
            }
            break;
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN:
            patterns.push_back(trigger.value);
            break;
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL:
            patterns.push_back("^(?:" + trigger.value + ")$");
            break;
        }
    }
    return {{"patterns", patterns}, {"token_ids", token_ids}};
}

// Grammars generated by upstream start with the end of the prompt; lazy ones and the caller's own do not.
std::string grammar_prefix(const common_chat_params & params, const common_chat_templates_inputs & inputs) {
    const bool made_upstream = !params.grammar.empty() && params.grammar != inputs.grammar;
    return made_upstream && !params.grammar_lazy ? params.generation_prompt : "";
}

common_json prompt_json(const common_chat_params & params, const common_chat_templates_inputs & inputs,
                        const llama_vocab * vocab) {
    return {
        {"text", params.prompt},
        {"generation_prompt", params.generation_prompt},
        {"grammar", params.grammar},
        {"grammar_lazy", params.grammar_lazy},
        {"grammar_prefix", grammar_prefix(params, inputs)},
        {"triggers", triggers_of(params, vocab)},
        {"preserved_tokens", params.preserved_tokens},
        {"stop", params.additional_stops},
        {"thinking_start", params.thinking_start_tag},
        {"thinking_ends", params.thinking_end_tags},
    };
}

std::optional<pyg::CallFormat> call_format_of(const common_json & request) {
    if (!request.contains("call_format")) {
        return std::nullopt;
    }
    const common_json & given = request.at("call_format");
    const auto          text  = [&](const char * key) { return given.at(key).get<std::string>(); };
    const auto          texts = [&](const char * key) { return given.at(key).get<std::vector<std::string>>(); };
    return pyg::CallFormat{text("section"), text("begin"),       texts("parts"),  texts("behind"),
                           text("between"), text("section_end"), text("trigger"), texts("tokens")};
}

// Where the real prompt ends with less than the engine's, which always tells a template whether to think, its answer
// may begin with reasoning or without: the parser and the grammar get only the common part.
void keep_what_the_prompt_ends_with(common_chat_params & params, const std::string & prompt_end) {
    const std::string & begun   = params.generation_prompt;
    const std::string & tag     = params.thinking_start_tag;
    const std::string   opening = begun.substr(0, tag.empty() ? std::string::npos : begun.find(tag));
    const size_t        n_least = opening.find_last_not_of(" \n") + 1;
    for (size_t n = begun.size(); n >= n_least && n > 0; n--) {
        if (string_ends_with(prompt_end, begun.substr(0, n))) {
            params.generation_prompt.resize(n);
            return;
        }
    }
}

struct Rendered {
    std::string                      json;
    std::unique_ptr<pyg_chat_parser> parser;
};

// Constrain tool calls without an opening tag, which upstream does not. Only at the start of the output: later, similar
// text may be content.
void keep_calls_without_tag(common_chat_params & params, const common_chat_templates_inputs & inputs) {
    const bool may_call = !inputs.tools.empty() && inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_AUTO;
    if (may_call && params.grammar.empty() && !params.parser.empty()) {
        params.grammar_lazy     = true;
        params.grammar          = pyg::grammar_of(params);
        params.grammar_triggers = {{COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN, R"(^\s*(\{\s?"name"))", LLAMA_TOKEN_NULL}};
    }
}

Rendered render(const common_chat_templates & templates, const llama_vocab * vocab, const char * request_json) {
    const common_json                  request = common_json::parse(request_json);
    const common_chat_templates_inputs inputs  = inputs_of(request);
    common_chat_params                 params  = common_chat_templates_apply(&templates, inputs);
    const std::string                  begun   = params.generation_prompt;
    keep_what_the_prompt_ends_with(params, text_or_empty(request, "prompt_end"));
    keep_calls_without_tag(params, inputs);
    if (request.contains("generic_tools")) {
        pyg::add_tool_calls(params,
                            {request.at("generic_tools"), inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED,
                             inputs.parallel_tool_calls, call_format_of(request)});
    }

    Rendered    rendered;
    common_json info          = prompt_json(params, inputs, vocab);
    info["generation_prompt"] = begun;
    rendered.json             = info.dump_safe();
    const auto format         = std::make_shared<const pyg::OutputFormat>(
        pyg::OutputFormat{params.format, std::move(params.generation_prompt), std::move(params.parser)});
    rendered.parser = std::make_unique<pyg_chat_parser>(std::make_unique<pyg::OutputParser>(format));
    return rendered;
}

}  // namespace

pyg_status pyg_chat_templates_new(pyg_model * model, const char * chat_template, pyg_chat_templates ** out,
                                  pyg_error * err) {
    return pyg::guard(err, [&] {
        auto made   = std::make_shared<pyg::ChatTemplates>();
        made->model = pyg::shared_object(model);
        with_template_limits(longest_template(*made->model, chat_template), PYG_ERR_INVALID_PARAMETER, NOT_READABLE,
                             [&] {
                                 made->templates = read_templates(*made->model, chat_template);
                                 made->info      = info(*made->templates).dump_safe();
                             });
        *out = new pyg_chat_templates(std::move(made));
    });
}

pyg_status pyg_chat_templates_share(pyg_chat_templates * templates, pyg_chat_templates ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_chat_templates(pyg::shared_object(templates)); });
}

pyg_status pyg_chat_templates_close(pyg_chat_templates * templates, pyg_error * err) {
    return pyg::close(templates, err);
}

void pyg_chat_templates_free(pyg_chat_templates * templates) { pyg::free_handle(templates); }

pyg_status pyg_chat_templates_info(pyg_chat_templates * templates, char ** out, pyg_error * err) {
    return pyg::with(templates, err, [&](const pyg::ChatTemplates & self) { *out = pyg::owned_copy(self.info); });
}

pyg_status pyg_chat_templates_render(pyg_chat_templates * templates, const char * request_json, char ** prompt_json,
                                     pyg_chat_parser ** parser, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto   self = pyg::shared_object(templates);
        const size_t longest =
            std::max(common_chat_templates_source(self->templates.get()).size(), std::strlen(request_json));
        Rendered rendered;
        with_template_limits(longest, PYG_ERR_INVALID_PARAMETER, NOT_RENDERED,
                             [&] { rendered = render(*self->templates, self->model->vocab, request_json); });
        *prompt_json = pyg::owned_copy(rendered.json);
        *parser      = rendered.parser.release();
    });
}
