// Validation of a chat template's syntax.
#include "chat/chat.hpp"
#include "jinja/lexer.h"
#include "jinja/parser.h"

#include <stdexcept>

namespace {

// Upstream's syntax tree is freed recursively on whichever thread closes it, and an error passes through every level.
// Each `elif`, and each `+` of a sum, is a level.
constexpr size_t MAX_LEVELS = 1000;

jinja::program parsed(const std::string & source) {
    try {
        return jinja::parse_from_tokens(jinja::lexer().tokenize(source));
    } catch (const std::exception & e) {
        if (e.what() == std::string("Unexpected token type")) {
            throw std::runtime_error("it ends inside a block, such as a for or an if, that is never closed");
        }
        throw;
    }
}

class Depth {
  public:
    Depth() {
        context_.visitor = [this](bool, const jinja::statement * node, const std::vector<jinja::visitor_pair> & parts) {
            enter(*node, parts);
        };
    }

    void require_few(const jinja::program & program) {
        for (const auto & statement : program.body) {
            statement->visit(context_);
        }
    }

  private:
    void enter(const jinja::statement & node, const std::vector<jinja::visitor_pair> & parts) {
        if (++level_ > MAX_LEVELS) {
            throw std::runtime_error("it nests more than " + std::to_string(MAX_LEVELS) + " levels deep");
        }
        for (const auto & [label, children] : parts) {
            for (const jinja::statement * child : children) {
                visit(child);
            }
        }
        enter_literal(node);
        level_--;
    }

    // Upstream's visitor treats these as leaves.
    void enter_literal(const jinja::statement & node) {
        if (const auto * array = dynamic_cast<const jinja::array_literal *>(&node)) {
            visit_all(array->val);
        } else if (const auto * tuple = dynamic_cast<const jinja::tuple_literal *>(&node)) {
            visit_all(tuple->val);
        } else if (const auto * object = dynamic_cast<const jinja::object_literal *>(&node)) {
            for (const auto & [key, value] : object->val) {
                visit(key.get());
                visit(value.get());
            }
        }
    }

    void visit_all(const jinja::statements & statements) {
        for (const auto & statement : statements) {
            visit(statement.get());
        }
    }

    void visit(const jinja::statement * node) {
        if (node) {
            node->visit(context_);
        }
    }

    jinja::context context_;
    size_t         level_ = 0;
};

}  // namespace

void pyg::require_valid_template(const std::string & source) { Depth().require_few(parsed(source)); }
