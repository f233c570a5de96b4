// Parser of regular expressions. Internal to syntax/: parse_pattern() calls it.
#pragma once

#include "regex/syntax/pattern.hpp"

#include <string>
#include <vector>

namespace pyg {

class PatternParser {
  public:
    PatternParser(const std::string & pattern, RegexSyntax syntax);

    Pattern parse();

  private:
    struct Flags {
        bool ignore_case = false, dot_all = false, multiline = false;
    };

    // pattern_parser.cpp
    Pattern choice();
    Pattern sequence();
    Pattern item();
    Pattern quantified(Pattern one, size_t start);
    bool    quantifier(uint32_t & least, uint32_t & most);
    bool    counts(uint32_t & least, uint32_t & most);
    bool    number(uint32_t & value);
    Pattern end_of_text();
    Pattern start_of_line();

    // groups.cpp
    Pattern group();
    Pattern group_contents(size_t start);
    Pattern look(Pattern::Kind kind, bool negative, size_t start);
    bool    flags_group(size_t start, Pattern & result);
    void    group_name(char end, size_t start);

    // escapes.cpp
    Pattern  escape();
    bool     class_escape(char32_t c, CharSet & set);  // \d, \w, \s, \p{...} and their complements
    uint32_t char_escape(char32_t c, bool in_class);
    bool     hex(size_t n_digits, uint32_t & value);
    uint32_t unicode_escape();
    uint32_t octal_escape(char32_t first);
    CharSet  property();
    void     refuse_back_reference(char32_t c, size_t start);

    // bracket_classes.cpp
    CharSet bracket_class();
    bool    class_atom(uint32_t & code_point, CharSet & set);

    Pattern one_of(CharSet set) const;  // with the flags
    bool    is_python() const { return syntax_ == RegexSyntax::PYTHON; }
    bool    at_end() const { return position_ == text_.size(); }
    bool    sees(const char * ascii) const;  // the next characters
    bool    skip(const char * ascii);

    [[noreturn]] void fail_at(size_t position, const std::string & reason) const;

    std::vector<uint32_t> text_;
    std::string           source_;
    RegexSyntax           syntax_;
    size_t                position_ = 0;
    Flags                 flags_;
    uint32_t              depth_     = 0;
    uint32_t              n_groups_  = 0;  // capturing ones in the whole expression
    bool                  has_names_ = false;
};

}  // namespace pyg
