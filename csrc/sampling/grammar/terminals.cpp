#include "sampling/grammar/terminals.hpp"

#include "boundary/guard.hpp"
#include "boundary/log.hpp"
#include "regex/numbers/numbers.hpp"
#include "schema/compile.hpp"
#include "schema/keywords/json_value.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace {

using pyg::fail;
using pyg::GrammarTerminal;

// Characters of a number, so that models come to its end. With a fraction, as many as a double tells apart.
constexpr uint32_t MOST_OF_INTEGER = 20, MOST_OF_NUMBER = 16;

void limit_numbers(pyg::SchemaShapes & shapes) {
    pyg::Languages &    languages = shapes.languages;
    const pyg::Language integers  = languages.all_of({json_integers(languages), languages.lengths(1, MOST_OF_INTEGER)});
    const pyg::Language limited   = languages.any_of({integers, languages.lengths(1, MOST_OF_NUMBER)});
    std::map<pyg::Language, pyg::Language> known = {{pyg::Languages::NOTHING, pyg::Languages::NOTHING}};
    for (pyg::Node & node : shapes.nodes) {
        const auto added = known.emplace(node.number, node.number);
        if (added.second) {
            const pyg::Language shorter = languages.all_of({node.number, limited});
            added.first->second         = languages.is_empty(shorter) ? node.number : shorter;
        }
        node.number = added.first->second;
    }
}

// Reads a grammar up to its end, copying everything but its terminals.
class Splitter {
  public:
    explicit Splitter(const std::string & text) : text_(text) {}

    pyg::SplitGrammar split() {
        while (at_ < text_.size()) {
            switch (text_[at_]) {
            case '"':
                copy_quoted('"');
                break;
            case '[':
                copy_quoted(']');
                break;
            case '#':
                copy_to(std::min(text_.find('\n', at_), text_.size()));
                break;
            case '%':
                at_++;
                add(read_terminal());
                break;
            default:
                copy_to(at_ + 1);
            }
        }
        return std::move(result_);
    }

  private:
    void copy_to(size_t end) {
        result_.text.append(text_, at_, end - at_);
        at_ = end;
    }

    void copy_quoted(char closing) {
        size_t end = at_ + 1;
        while (end < text_.size() && text_[end] != closing && text_[end] != '\n') {
            end += text_[end] == '\\' ? 2 : 1;
        }
        copy_to(std::min(end + 1, text_.size()));
    }

    void add(GrammarTerminal terminal) {
        if (result_.terminals.size() >= MAX_TERMINALS) {
            throw fail(PYG_ERR_GRAMMAR, "the grammar has more than %zu schemas and regular expressions", MAX_TERMINALS);
        }
        result_.text += "<[" + std::to_string(pyg::FIRST_TERMINAL_TOKEN + result_.terminals.size()) + "]>";
        result_.terminals.push_back(std::move(terminal));
    }

    GrammarTerminal read_terminal() {
        if (read_word("json")) {
            GrammarTerminal    terminal;
            pyg::SchemaOptions options;
            options.requires_free_members = true;
            options.known_members_only    = true;
            options.keywords_imply_types  = true;
            options.plain_values          = true;
            read_options(terminal, options);
            terminal.shapes = pyg::compile_schema(read_json(), options);
            for (const std::string & note : terminal.shapes->notes) {
                pyg::on_engine_log(GGML_LOG_LEVEL_WARN, ("JSON schema: " + note + "\n").c_str(), nullptr);
            }
            if (!terminal.any_spelling) {
                limit_numbers(*terminal.shapes);
            }
            return terminal;
        }
        if (read_word("regex")) {
            return read_regex();
        }
        throw failure("a terminal must be %json or %regex");
    }

    // After "%json": options in brackets.
    void read_options(GrammarTerminal & terminal, pyg::SchemaOptions & options) {
        if (at_ >= text_.size() || text_[at_] != '[') {
            return;
        }
        do {
            at_++;
            if (read_word("any-order")) {
                terminal.any_order = true;
            } else if (read_word("extra-members")) {
                options.known_members_only   = false;
                options.keywords_imply_types = false;
            } else if (read_word("any-spelling")) {
                terminal.any_spelling = true;
                options.plain_values  = false;
            } else if (read_word("unknown-keywords")) {
                options.refuse_misspelled = false;
            } else {
                throw failure("%json has the options any-order, extra-members, any-spelling and unknown-keywords");
            }
        } while (at_ < text_.size() && text_[at_] == ',');
        if (at_ >= text_.size() || text_[at_] != ']') {
            throw failure("the options of %json must end with ]");
        }
        at_++;
    }

    GrammarTerminal read_regex() {
        pyg::JsonValue pattern;
        pyg::parse_json(read_json(), pattern);
        if (!pattern.is_string()) {
            throw failure("%regex must be followed by a JSON string");
        }
        GrammarTerminal terminal;
        terminal.shapes  = std::make_unique<pyg::SchemaShapes>();
        terminal.is_text = true;
        terminal.text    = terminal.shapes->languages.regex(pattern.text, pyg::RegexSyntax::PYTHON, /*whole =*/true);
        if (terminal.shapes->languages.is_empty(terminal.text)) {
            throw fail(PYG_ERR_GRAMMAR, "the regular expression \"%s\" matches no text", pattern.text.c_str());
        }
        return terminal;
    }

    bool read_word(const char * word) {
        if (text_.compare(at_, std::strlen(word), word) != 0) {
            return false;
        }
        at_ += std::strlen(word);
        return true;
    }

    // The JSON text that starts here, up to the end of its outermost value.
    std::string read_json() {
        at_                = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
        const size_t begin = at_;
        int          depth = 0;
        do {
            if (at_ >= text_.size()) {
                throw failure("the JSON text after % is not complete");
            }
            const char now = text_[at_];
            if (now == '"') {
                read_string();
            } else if (std::strchr("{[]},: \t\r\n", now)) {
                depth += now == '{' || now == '[' ? 1 : now == '}' || now == ']' ? -1 : 0;
                at_++;
            } else {
                at_ = std::min(text_.find_first_of("{[]},:\" \t\r\n", at_), text_.size());
            }
        } while (depth > 0);
        return text_.substr(begin, at_ - begin);
    }

    void read_string() {
        at_++;
        while (at_ < text_.size() && text_[at_] != '"') {
            at_ += text_[at_] == '\\' ? 2 : 1;
        }
        at_ = std::min(at_ + 1, text_.size());
    }

    pyg::Failure failure(const char * reason) const {
        const auto end  = text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size()));
        const auto line = 1 + std::count(text_.begin(), end, '\n');
        return fail(PYG_ERR_GRAMMAR, "the grammar has an error at line %zu: %s", static_cast<size_t>(line), reason);
    }

    static constexpr size_t MAX_TERMINALS = 1000;

    const std::string & text_;
    size_t              at_ = 0;
    pyg::SplitGrammar   result_;
};

}  // namespace

pyg::SplitGrammar pyg::split_terminals(const std::string & text) { return Splitter(text).split(); }
