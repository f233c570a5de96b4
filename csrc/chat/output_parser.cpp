// Streaming parser of model output: text to messages, with the parser that upstream creates for each prompt.
#include "chat-peg-parser.h"
#include "chat/chat.hpp"

#include <algorithm>

namespace {

using pyg::fail;

// Stack that upstream's parser needs per bracket, in units that with_stack_for reserves per character.
constexpr size_t STACK_OF_A_LEVEL = 16;

size_t n_brackets(const std::string & text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return c == '{' || c == '['; }));
}

// Length of a UTF-8 character, from its first byte.
size_t n_bytes_of_character(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

struct Reading {
    common_chat_msg message;
    size_t          n_shown  = 0;     // bytes up to the end of content or reasoning
    bool            is_valid = true;  // incomplete text counts as valid
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

Reading read(const pyg::OutputFormat & format, const std::string & text) {
    common_peg_parse_context context(format.opening + text, COMMON_PEG_PARSE_FLAG_LENIENT);
    const auto               result = format.grammar.parse(context);
    Reading                  reading;
    std::vector<size_t>      name_ends;
    reading.is_valid = !result.fail();
    context.ast.visit(result, [&](const common_peg_ast_node & node) {
        if (node.tag == common_chat_peg_builder::CONTENT || node.tag == common_chat_peg_builder::REASONING) {
            reading.n_shown = node.end;
        } else if (node.tag == common_chat_peg_builder::TOOL_NAME) {
            name_ends.push_back(node.end);
        }
    });
    mapper_for(format.format, reading.message)->from_ast(context.ast, result);
    auto & calls = reading.message.tool_calls;
    if (!calls.empty() && calls.size() == name_ends.size() && name_ends.back() == context.input.size()) {
        calls.pop_back();  // its name may be the prefix of another tool's
    }
    return reading;
}

// What was returned is never retracted: a parse that contradicts it adds nothing.
void extend(std::string & emitted, const std::string & now) {
    if (now.compare(0, emitted.size(), emitted) == 0) {
        emitted = now;
    }
}

void extend(common_chat_msg & emitted, const common_chat_msg & now) {
    extend(emitted.reasoning_content, now.reasoning_content);
    extend(emitted.content, now.content);
    for (size_t i = 0; i < now.tool_calls.size(); i++) {
        if (i == emitted.tool_calls.size()) {
            emitted.tool_calls.push_back(now.tool_calls[i]);
        } else if (emitted.tool_calls[i].name == now.tool_calls[i].name) {
            extend(emitted.tool_calls[i].arguments, now.tool_calls[i].arguments);
        }
    }
}

// Delta between two states of a message, as pyg_chat_parser_feed returns it.
common_json added(const common_chat_msg & before, const common_chat_msg & now) {
    common_json calls = common_json::array();
    for (size_t i = 0; i < now.tool_calls.size(); i++) {
        const common_chat_tool_call & call    = now.tool_calls[i];
        const bool                    is_new  = i >= before.tool_calls.size();
        const size_t                  n_known = is_new ? 0 : before.tool_calls[i].arguments.size();
        if (is_new || call.arguments.size() > n_known) {
            calls.push_back({{"index", i},
                             {"id", is_new ? call.id : ""},
                             {"name", is_new ? call.name : ""},
                             {"arguments", call.arguments.substr(n_known)}});
        }
    }
    return {{"content", now.content.substr(before.content.size())},
            {"reasoning_content", now.reasoning_content.substr(before.reasoning_content.size())},
            {"tool_calls", calls}};
}

}  // namespace

namespace pyg {

// If the output continues a message, the existing part counts as returned.
OutputParser::OutputParser(std::shared_ptr<const OutputFormat> format) : format_(std::move(format)) {
    if (format_->grammar.empty()) {
        return;
    }
    const size_t n_opened = n_brackets(format_->opening);
    with_stack_for(STACK_OF_A_LEVEL * n_opened, [&] { progress_.emitted = read(*format_, "").message; });
    progress_.n_opened = n_opened;
}

common_json OutputParser::feed(const std::string & text, bool last) {
    if (ended_) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "this parser has parsed a complete output: create a new one for the next output");
    }
    text_ += text;
    ended_       = last;
    Progress now = progress_;
    if (format_->grammar.empty()) {
        now.emitted.content = text_;
    } else {
        const size_t n_opened = now.n_opened + n_brackets(text_.substr(now.n_read));
        with_stack_for(STACK_OF_A_LEVEL * n_opened, [&] { read_on(now); });
    }
    common_json news = added(progress_.emitted, now.emitted);
    progress_        = std::move(now);
    return news;
}

// Parse the text again at each boundary, and at its end. If it does not match the format then, the rest is content,
// unless there are tool calls.
void OutputParser::read_on(Progress & now) const {
    for (size_t end = next_end(now); end != std::string::npos; end = next_end(now)) {
        read_to(end, now);
    }
    if (ended_ && !read_to(text_.size(), now) && now.emitted.tool_calls.empty()) {
        const std::string all = format_->opening + text_;
        now.emitted.content += all.substr(std::max(now.n_shown, format_->opening.size()));
    }
}

// Parse up to `end`. Return true if the text matches the format.
bool OutputParser::read_to(size_t end, Progress & now) const {
    const std::string text = text_.substr(0, end);
    now.n_opened += n_brackets(text.substr(now.n_read));
    now.n_read            = end;
    const Reading reading = read(*format_, text);
    if (reading.is_valid) {
        extend(now.emitted, reading.message);
        now.n_shown = reading.n_shown;
    }
    return reading.is_valid;
}

// Next boundary; npos if the text does not reach it yet. Boundaries are one character apart, and more where parsing is
// slow: in long texts, and in deeply nested ones, because a level takes the time of hundreds of characters.
size_t OutputParser::next_end(const Progress & now) const {
    const size_t depth        = now.n_opened / 128;
    const size_t n_characters = 1 + now.n_read / 1024 + depth * depth;
    size_t       end          = now.n_read;
    for (size_t i = 0; i < n_characters; i++) {
        if (end >= text_.size()) {
            return std::string::npos;
        }
        end += n_bytes_of_character(text_[end]);
    }
    return end <= text_.size() ? end : std::string::npos;
}

}  // namespace pyg

pyg_status pyg_chat_parser_clone(pyg_chat_parser * parser, pyg_chat_parser ** out, pyg_error * err) {
    return pyg::with(parser, err, [&](const pyg::OutputParser & self) {
        *out = new pyg_chat_parser(std::make_unique<pyg::OutputParser>(self.format()));
    });
}

pyg_status pyg_chat_parser_feed(pyg_chat_parser * parser, const char * text, size_t n_bytes, bool last,
                                char ** delta_json_out, pyg_error * err) {
    return pyg::with(parser, err, [&](pyg::OutputParser & self) {
        *delta_json_out = pyg::owned_copy(self.feed(std::string(text, n_bytes), last).dump_safe());
    });
}

pyg_status pyg_chat_parser_close(pyg_chat_parser * parser, pyg_error * err) { return pyg::close(parser, err); }
void       pyg_chat_parser_free(pyg_chat_parser * parser) { pyg::free_handle(parser); }
