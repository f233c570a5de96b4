// Turns generated text into a message, piece by piece, with the parser that upstream makes for each prompt.
#include "chat-peg-parser.h"
#include "chat/chat.hpp"

#include <algorithm>

namespace {

using pyg::fail;

// Stack that upstream's parser needs per bracket, in units of what with_stack_for reserves per character.
constexpr size_t STACK_OF_A_LEVEL = 16;

size_t n_brackets(const std::string & text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return c == '{' || c == '['; }));
}

struct Reading {
    common_chat_msg message;
    bool            understood = true;  // so far: unfinished text counts as understood
};

std::unique_ptr<common_chat_peg_mapper> mapper_for(common_chat_format format, common_chat_msg & message) {
    switch (format) {
    case COMMON_CHAT_FORMAT_PEG_GEMMA4:
        return std::make_unique<common_chat_peg_gemma4_mapper>(message);
    case COMMON_CHAT_FORMAT_PEG_MINIMAX_M3:
        return std::make_unique<common_chat_peg_minimax_m3_mapper>(message);
    default:
        return std::make_unique<common_chat_peg_mapper>(message);
    }
}

Reading read_content(const std::string & text) {
    Reading reading{{}, true};
    reading.message.content = text;
    return reading;
}

Reading read(const pyg::AnswerFormat & format, const std::string & text) {
    if (format.grammar.empty()) {
        return read_content(text);
    }
    common_peg_parse_context context(format.opening + text, COMMON_PEG_PARSE_FLAG_LENIENT);
    const auto               result = format.grammar.parse(context);
    Reading                  reading{{}, !result.fail()};
    mapper_for(format.format, reading.message)->from_ast(context.ast, result);
    return reading;
}

bool begins_with(const std::string & text, const std::string & beginning) {
    return text.compare(0, beginning.size(), beginning) == 0;
}

// What `now` adds to `told`, which is updated. A parse that retracts something already told adds nothing.
std::string grow(std::string & told, const std::string & now) {
    if (now.size() <= told.size() || !begins_with(now, told)) {
        return "";
    }
    std::string more = now.substr(told.size());
    told             = now;
    return more;
}

common_chat_msg_diff grow(common_chat_tool_call & told, const common_chat_tool_call & now, size_t index) {
    common_chat_msg_diff diff;
    if (told.name == now.name) {
        diff.tool_call_index           = index;
        diff.tool_call_delta.arguments = grow(told.arguments, now.arguments);
    }
    return diff;
}

std::vector<common_chat_msg_diff> grow(common_chat_msg & told, const common_chat_msg & now) {
    std::vector<common_chat_msg_diff> diffs;
    common_chat_msg_diff              text;
    text.reasoning_content_delta = grow(told.reasoning_content, now.reasoning_content);
    text.content_delta           = grow(told.content, now.content);
    if (!text.reasoning_content_delta.empty() || !text.content_delta.empty()) {
        diffs.push_back(text);
    }
    for (size_t i = 0; i < now.tool_calls.size(); i++) {
        if (i < told.tool_calls.size()) {
            const auto diff = grow(told.tool_calls[i], now.tool_calls[i], i);
            if (!diff.tool_call_delta.arguments.empty()) {
                diffs.push_back(diff);
            }
        } else {
            common_chat_msg_diff diff;
            diff.tool_call_index = i;
            diff.tool_call_delta = now.tool_calls[i];
            told.tool_calls.push_back(now.tool_calls[i]);
            diffs.push_back(diff);
        }
    }
    return diffs;
}

common_json delta_json(const std::vector<common_chat_msg_diff> & diffs) {
    common_json calls = common_json::array();
    std::string content, reasoning_content;
    for (const common_chat_msg_diff & diff : diffs) {
        content += diff.content_delta;
        reasoning_content += diff.reasoning_content_delta;
        if (diff.tool_call_index != std::string::npos) {
            common_json call  = common_json::object();
            call["index"]     = diff.tool_call_index;
            call["id"]        = diff.tool_call_delta.id;
            call["name"]      = diff.tool_call_delta.name;
            call["arguments"] = diff.tool_call_delta.arguments;
            calls.push_back(call);
        }
    }
    common_json out          = common_json::object();
    out["content"]           = content;
    out["reasoning_content"] = reasoning_content;
    out["tool_calls"]        = calls;
    return out;
}

}  // namespace

namespace pyg {

// If the answer continues a message, the existing part counts as told.
Answer::Answer(std::shared_ptr<const AnswerFormat> format)
    : format_(std::move(format)), n_opened_(n_brackets(format_->opening)) {
    with_stack_for(STACK_OF_A_LEVEL * n_opened_, [&] { told_ = read(*format_, "").message; });
}

std::vector<common_chat_msg_diff> Answer::feed(const std::string & text, bool last) {
    if (ended_) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "this parser has read a whole answer: make a new one for the next answer");
    }
    text_ += text;
    ended_ = last;
    n_opened_ += n_brackets(text);
    Reading reading;
    with_stack_for(STACK_OF_A_LEVEL * n_opened_, [&] { reading = read(*format_, text_); });
    if (last && !reading.understood && told_.tool_calls.empty()) {
        return grow(told_, read_content(text_).message);
    }
    return grow(told_, reading.message);
}

}  // namespace pyg

pyg_status pyg_chat_parser_clone(pyg_chat_parser * parser, pyg_chat_parser ** out, pyg_error * err) {
    return pyg::with(parser, err, [&](pyg_chat_parser & handle) {
        auto clone    = std::make_unique<pyg_chat_parser>();
        clone->answer = std::make_unique<pyg::Answer>(handle.answer->format());
        *out          = clone.release();
    });
}

pyg_status pyg_chat_parser_feed(pyg_chat_parser * parser, const char * text, size_t n_bytes, bool last,
                                char ** delta_json_out, pyg_error * err) {
    return pyg::with(parser, err, [&](pyg_chat_parser & handle) {
        const auto diffs = handle.answer->feed(std::string(text, n_bytes), last);
        *delta_json_out  = pyg::owned_copy(delta_json(diffs).dump_safe());
    });
}

pyg_status pyg_chat_parser_close(pyg_chat_parser * parser, pyg_error * err) { return pyg::close(parser, err); }

void pyg_chat_parser_free(pyg_chat_parser * parser) { pyg::free_handle(parser); }
