// What the files about chats share: the objects behind their handles, and how text and JSON cross the boundary.
#pragma once

#include "boundary/deep_stack.hpp"
#include "boundary/handles.hpp"
#include "chat.h"
#include "chat/jinja_limits.hpp"

#include <algorithm>

namespace pyg {

// Text for the caller to own; NUL-terminated, freed by pyg_string_free.
char * owned_copy(const std::string & text);

// Upstream's parsers recurse with the text they read, a few kilobytes of stack for each byte in the worst case, and
// templates may call themselves, so they run on a stack that suffices. What they throw becomes a failure of `code`.
template <class Body>
void with_recursion_over(size_t text_bytes, pyg_code code, const char * what, Body && body) {
    constexpr size_t STACKS_OF_A_REGEX = 4;
    constexpr size_t SHORT_TEXT        = 512;
    on_stack_for(STACKS_OF_A_REGEX * std::max(text_bytes, SHORT_TEXT), [&] {
        start_jinja_clock();
        try {
            body();
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & e) {
            throw fail(code, "%s: %s", what, e.what());
        }
    });
}

// How the answers to one prompt are written, made by its template and never changed.
struct AnswerFormat {
    common_chat_format format;
    std::string        opening;  // the end of the prompt, where the assistant's turn began: answers are read with it
    common_peg_arena   grammar;  // empty: all of an answer is content
};

// Tools for a template that knows none.
struct GenericTools {
    common_json tools;  // as in a request
    bool        required;
    bool        parallel;
};

// The grammar of what the parser reads; of a lazy one, from the opening of a call on.
std::string grammar_of(const common_chat_params & params);

// Has answers to a prompt call them: sets its parser, and a grammar for the calls.
void give_tools(common_chat_params & params, const GenericTools & tools);

// One answer, as far as it has come.
class Answer {
  public:
    explicit Answer(std::shared_ptr<const AnswerFormat> format);

    const std::shared_ptr<const AnswerFormat> & format() const { return format_; }

    // What `text` adds to the message, and with `last` also what was held back.
    std::vector<common_chat_msg_diff> feed(const std::string & text, bool last);

  private:
    std::shared_ptr<const AnswerFormat> format_;
    std::string                         text_;
    common_chat_msg                     told_;
    size_t                              n_opened_;  // brackets in it, and before it in the opening
    bool                                ended_ = false;
};

}  // namespace pyg

struct pyg_chat_templates : pyg::Handle {
    std::shared_ptr<pyg::Model>                  model;
    std::shared_ptr<const common_chat_templates> templates;
    std::string                                  about;  // JSON, see pyg_chat_templates_about

    pyg_chat_templates() : Handle(PYG_HANDLE_CHAT_TEMPLATES) {}
    void release() {
        templates.reset();
        model.reset();
    }
    void leak() {
        new std::shared_ptr<const common_chat_templates>(std::move(templates));
        new std::shared_ptr<pyg::Model>(std::move(model));
    }
};

struct pyg_chat_parser : pyg::Handle {
    std::unique_ptr<pyg::Answer> answer;

    pyg_chat_parser() : Handle(PYG_HANDLE_CHAT_PARSER) {}
    void release() { answer.reset(); }
    void leak() { (void) answer.release(); }
};
