// Shared by the chat files: the objects behind their handles, and how text and JSON cross the boundary.
#pragma once

#include "boundary/handles.hpp"
#include "boundary/large_stack.hpp"
#include "boundary/machine_limits.hpp"
#include "boundary/owned_string.hpp"
#include "chat.h"
#include "chat/jinja_limits.hpp"
#include "chat/template_limits.hpp"

#include <algorithm>

namespace pyg {

// Upstream's parsers recurse over their text, with a few kilobytes of stack per byte in the worst case, and templates
// may recurse too, so they run on a large enough stack, and with limited memory. What they throw becomes a failure with
// `code`.
template <class Body>
void with_template_limits(size_t text_bytes, pyg_code code, const char * what, Body && body) {
    constexpr size_t STACKS_OF_A_REGEX = 4;
    constexpr size_t SHORT_TEXT        = 512;
    constexpr size_t MEMORY            = 256 << 20;
    constexpr size_t MEMORY_PER_BYTE   = 256;  // measured: 120, for many short messages
    // The stack below reserves as much again, which counts where address space is limited.
    const size_t memory  = std::min<uint64_t>(MEMORY + text_bytes * MEMORY_PER_BYTE, address_space_left() / 3);
    const auto   limited = [&] {
        const TemplateLimits limits(memory);
        const JinjaValues    values;
        std::string          reason;
        try {
            body();
        } catch (const TemplateStopped &) {  // told below
        } catch (const std::bad_alloc &) {
            if (!TemplateLimits::exceeded()) {
                throw;
            }
        } catch (const std::exception & e) {
            reason = e.what();
        }
        // Upstream may have taken it for the refusal of a conversation that it tried, or have lost the words.
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
    // A level of a nested list takes more memory than stack to free it.
    on_large_stack(STACKS_OF_A_REGEX * std::max(text_bytes, SHORT_TEXT), limited, memory);
}

// The format of the answers to one prompt. Immutable.
struct OutputFormat {
    common_chat_format format;
    std::string      opening;  // the end of the prompt, from where the assistant's turn begins: parsed with each answer
    common_peg_arena grammar;  // empty: the whole answer is content
};

// Tools for a template without tool support.
struct GenericTools {
    common_json tools;  // as in a request
    bool        required;
    bool        parallel;
};

// The grammar of what the parser reads; a lazy one starts at the opening of a call.
std::string grammar_of(const common_chat_params & params);

// Lets answers to the prompt call them: sets its parser and a grammar for the calls.
void add_tool_calls(common_chat_params & params, const GenericTools & tools);

// One answer so far. Whatever pieces it comes in, it is read in the same parts, so that its meaning does not depend on
// them.
class OutputParser {
  public:
    explicit OutputParser(std::shared_ptr<const OutputFormat> format);

    const std::shared_ptr<const OutputFormat> & format() const { return format_; }

    // What `text` adds to the message, as pyg_chat_parser_feed returns it; with `last`, also what was held back.
    common_json feed(const std::string & text, bool last);

  private:
    struct Progress {
        common_chat_msg emitted;       // the message, of which nothing is taken back
        size_t          n_read   = 0;  // bytes of the text, in whole parts
        size_t          n_opened = 0;  // brackets in them and in the opening before them
        size_t          n_shown  = 0;  // bytes of opening and text up to the end of what is content or reasoning
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

struct pyg_chat_templates : pyg::Handle {
    std::shared_ptr<pyg::Model>                  model;
    std::shared_ptr<const common_chat_templates> templates;
    std::string                                  info;  // JSON, see pyg_chat_templates_about

    pyg_chat_templates() : Handle(PYG_HANDLE_CHAT_TEMPLATES) {}
    void release() {
        templates.reset();
        model.reset();
    }
    void leak() {
        pyg::leak_object(std::move(templates));
        pyg::leak_object(std::move(model));
    }
};

struct pyg_chat_parser : pyg::Handle {
    std::unique_ptr<pyg::OutputParser> parser;

    pyg_chat_parser() : Handle(PYG_HANDLE_CHAT_PARSER) {}
    void release() { parser.reset(); }
    void leak() { (void) parser.release(); }
};
