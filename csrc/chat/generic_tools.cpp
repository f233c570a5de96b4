// Tool calls in formats that upstream does not parse. For templates without tool support, a system message describes
// the tools (pyggml/chat/generic_tools.py), and the model calls them as JSON between tags, after any content. Others
// have a format of their own (pyggml/chat/call_format.py).
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

// One call, up to its end, in the format of a template.
common_peg_parser call_of(common_chat_peg_builder & p, const pyg::CallFormat & format, const common_json & tool,
                          size_t index) {
    const common_json & function  = tool.at("function");
    const std::string   name      = "tool-" + std::to_string(index);
    const auto          arguments = p.schema(p.json(), name + "-schema", common_chat_tool_parameters(function));
    bool                is_open   = true;
    auto                opening   = p.literal(format.begin);
    auto                rest      = p.eps();
    for (size_t i = 0; i < format.parts.size(); i++) {
        auto &              sequence = is_open ? opening : rest;
        const std::string & behind   = format.behind[i];
        if (format.parts[i] == "name") {
            sequence += p.tool_name(p.literal(function.at("name").get<std::string>()));
        } else if (format.parts[i] == "id") {
            // An id behind the arguments comes too late for a stream, whose call has got one.
            sequence += is_open ? p.tool_id(p.until(behind)) : p.until(behind);
        } else {
            is_open = false;
            rest    = p.tool_args(arguments) + p.literal(behind);
            continue;
        }
        sequence += p.literal(behind);
    }
    return p.rule(name, p.tool(p.tool_open(opening) + rest));
}

common_peg_parser calls_of(common_chat_peg_builder & p, const pyg::GenericTools & tools) {
    if (!tools.format) {
        const auto call = p.standard_json_tools(CALL_START, CALL_END, tools.tools, false, true);
        return tools.parallel ? p.one_or_more(call + p.space()) : call;
    }
    auto   choice = p.choice();
    size_t index  = 0;
    for (const common_json & tool : tools.tools) {
        choice |= call_of(p, *tools.format, tool, index++);
    }
    const std::string & between = tools.format->between;
    const auto          more    = between.empty() ? choice : p.literal(between) + choice;
    const auto          calls   = tools.parallel ? choice + p.zero_or_more(more) : choice;
    const std::string & section = tools.format->section;
    const std::string & end     = tools.format->section_end;
    const auto          begun   = section.empty() ? calls : p.literal(section) + calls;
    return p.trigger_rule("tool-call", end.empty() ? begun : begun + p.optional(p.literal(end)));
}

std::string start_of(const pyg::GenericTools & tools) {
    return tools.format ? tools.format->section + tools.format->begin : CALL_START;
}

common_peg_arena parser_of(const common_chat_params & params, const pyg::GenericTools & tools) {
    return build_chat_peg_parser([&](common_chat_peg_builder & p) {
        const auto calls   = calls_of(p, tools);
        const auto content = p.optional(p.content(p.until(start_of(tools))));
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
        const std::string trigger = tools.format ? tools.format->trigger : CALL_START;
        params.grammar_triggers   = {{COMMON_GRAMMAR_TRIGGER_TYPE_WORD, trigger, LLAMA_TOKEN_NULL}};
    }
    auto & preserved = params.preserved_tokens;
    if (tools.format) {
        preserved.insert(preserved.end(), tools.format->tokens.begin(), tools.format->tokens.end());
    } else {
        preserved.insert(preserved.end(), {CALL_START, CALL_END});
    }
}

}  // namespace pyg
