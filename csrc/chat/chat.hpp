// Objects behind the handles of chat templates and output parsers, and limits for upstream's code.
#pragma once

#include "boundary/handles.hpp"
#include "boundary/large_stack.hpp"
#include "boundary/machine_limits.hpp"
#include "chat.h"
#include "chat/template_limits.hpp"

#include <algorithm>
#include <optional>

namespace pyg {

// Run upstream's parsers or templates on a large stack and with limited memory, because they recurse, with a few
// kilobytes of stack per byte of text in the worst case. Exceptions become a failure with `code`.
template <class Body>
void with_template_limits(size_t text_bytes, pyg_code code, const char * what, Body && body) {
    constexpr size_t STACKS_OF_A_REGEX = 4;
    constexpr size_t SHORT_TEXT        = 512;
    constexpr size_t MEMORY            = 256 << 20;
    constexpr size_t MEMORY_PER_BYTE   = 256;  // measured: 120, for many short messages
    // The stack reserves as much again, which matters where address space is limited.
    const size_t memory  = std::min<uint64_t>(MEMORY + text_bytes * MEMORY_PER_BYTE, address_space_left() / 3);
    const auto   limited = [&] {
        const TemplateLimits limits(memory);
        const JinjaValues    values;
        std::string          reason;
        try {
            body();
        } catch (const TemplateStopped &) {  // reported below
        } catch (const std::bad_alloc &) {
            if (!TemplateLimits::exceeded()) {
                throw;
            }
        } catch (const std::exception & e) {
            reason = e.what();
        }
        // Upstream may have taken it for an error of the template, or have lost the message.
        if (TemplateLimits::lacked_memory()) {
            throw std::bad_alloc();
        }
        const char * exceeded = TemplateLimits::exceeded();
        if (exceeded && reason.find(exceeded) == std::string::npos) {
            reason = exceeded;
        }
        if (!reason.empty()) {
            throw fail(code, "%s: %s", what, reason.c_str());
        }
    };
    // Freeing one level of a nested list takes less stack than the level took memory.
    on_large_stack(STACKS_OF_A_REGEX * std::max(text_bytes, SHORT_TEXT), limited, memory);
}

// Chat templates of a model. Immutable.
struct ChatTemplates {
    std::shared_ptr<Model>    model;
    common_chat_templates_ptr templates;
    std::string               info;  // JSON, see pyg_chat_templates_info
};

// Throws std::exception, with the reason, if upstream cannot parse a template, or if it nests too deeply.
void require_valid_template(const std::string & source);

// Output format of a prompt. Immutable.
struct OutputFormat {
    common_chat_format format;
    std::string        opening;  // end of the prompt, where the assistant's turn starts: parsed with each output
    common_peg_arena   grammar;  // empty: the whole output is content
};

// The text around the parts of a call whose arguments are one JSON object, at its end.
struct CallFormat {
    std::string              section, begin;  // before the first call, and before each
    std::vector<std::string> parts, behind;   // "name", "id" and "arguments", and the text behind each
    std::string              between;         // two calls; may be empty
    std::string              section_end;     // after the last call; may be empty
    std::string              trigger;         // the first token of it all
    std::vector<std::string> tokens;          // special tokens in these texts
};

// Tools that are called in a format that upstream does not parse.
struct GenericTools {
    common_json               tools;  // as in a request
    bool                      required;
    bool                      parallel;
    std::optional<CallFormat> format;  // of the template; without it, JSON between tags
};

// Grammar of what the parser reads; a lazy one starts at the opening of a tool call.
std::string grammar_of(const common_chat_params & params);

// Enable tool calls: sets the parser and a grammar for them.
void add_tool_calls(common_chat_params & params, const GenericTools & tools);

// Streaming parser of one model output. It parses at fixed boundaries, so that the result does not depend on how the
// text is split into chunks.
class OutputParser {
  public:
    explicit OutputParser(std::shared_ptr<const OutputFormat> format);

    const std::shared_ptr<const OutputFormat> & format() const { return format_; }

    // Parse more text and return the delta of the message, as pyg_chat_parser_feed; with `last`, also what was held
    // back.
    common_json feed(const std::string & text, bool last);

  private:
    struct Progress {
        common_chat_msg emitted;       // the message returned so far, which only grows
        size_t          n_read   = 0;  // bytes of the text parsed so far
        size_t          n_opened = 0;  // open brackets in them and in the prompt's end
        size_t          n_shown  = 0;  // bytes up to the end of content or reasoning
    };

    void   read_on(Progress & now) const;
    bool   read_to(size_t end, Progress & now) const;
    size_t next_end(const Progress & now) const;

    std::shared_ptr<const OutputFormat> format_;
    std::string                         text_;
    Progress                            progress_;
    bool                                ended_ = false;
};

}  // namespace pyg

struct pyg_chat_templates : pyg::PointerHandle<std::shared_ptr<const pyg::ChatTemplates>, PYG_HANDLE_CHAT_TEMPLATES> {
    using PointerHandle::PointerHandle;
};

struct pyg_chat_parser : pyg::PointerHandle<std::unique_ptr<pyg::OutputParser>, PYG_HANDLE_CHAT_PARSER> {
    using PointerHandle::PointerHandle;
};
