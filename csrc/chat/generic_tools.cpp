// Tool calls for templates without tool support: a system message describes the tools (pyggml/chat/generic_tools.py),
// and the model calls them as JSON between tags, after any content.
#include "chat-peg-parser.h"
#include "chat/chat.hpp"
#include "json-schema-to-grammar.h"

namespace {

constexpr const char * CALL_START = "<tool_call>";
constexpr const char * CALL_END   = "</tool_call>";

common_peg_parser reasoning(common_chat_peg_builder & p, const common_chat_params & params) {
    if (params.thinking_start_tag.empty() || params.thinking_end_tags.empty()) {
        return p.eps();
    }
    auto end = p.choice();
    for (const std::string & tag : params.thinking_end_tags) {
        end |= p.literal(tag);
    }
    return p.optional(p.optspace(params.thinking_start_tag) + p.reasoning(p.until_one_of(params.thinking_end_tags)) +
                      end + p.space());
}

common_peg_arena parser_of(const common_chat_params & params, const pyg::GenericTools & tools) {
    return build_chat_peg_parser([&](common_chat_peg_builder & p) {
        const auto call    = p.standard_json_tools(CALL_START, CALL_END, tools.tools, false, true);
        const auto calls   = tools.parallel ? p.one_or_more(call + p.space()) : call;
        const auto content = p.optional(p.content(p.until(CALL_START)));
        const auto opening = p.prefix(params.generation_prompt, params.thinking_start_tag);
        if (tools.required) {
            return opening << reasoning(p, params) + calls + p.end();
        }
        return opening << reasoning(p, params) + content + p.optional(calls) + p.end();
    });
}

}  // namespace

namespace pyg {

std::string grammar_of(const common_chat_params & params) {
    return build_grammar(
        [&](const common_grammar_builder & builder) { params.parser.build_grammar(builder, params.grammar_lazy); });
}

void add_tool_calls(common_chat_params & params, const GenericTools & tools) {
    params.format       = COMMON_CHAT_FORMAT_PEG_NATIVE;
    params.parser       = parser_of(params, tools);
    params.grammar_lazy = !tools.required;
    params.grammar      = grammar_of(params);
    if (params.grammar_lazy) {
        params.grammar_triggers = {{COMMON_GRAMMAR_TRIGGER_TYPE_WORD, CALL_START, LLAMA_TOKEN_NULL}};
    }
    params.preserved_tokens.insert(params.preserved_tokens.end(), {CALL_START, CALL_END});
}

}  // namespace pyg
