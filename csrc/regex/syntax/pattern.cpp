// Regular expressions as trees.
#include "regex/syntax/pattern.hpp"

#include <algorithm>

namespace pyg {

Pattern Pattern::chars(CharSet set) {
    Pattern pattern;
    pattern.kind = Kind::CHARS;
    pattern.set  = std::move(set);
    return pattern;
}

Pattern Pattern::assertion(Kind kind) {
    Pattern pattern;
    pattern.kind           = kind;
    pattern.has_assertions = true;
    pattern.needs_past     = kind != Kind::END && kind != Kind::LOOK_AHEAD;
    return pattern;
}

Pattern Pattern::word_boundary(CharSet word, bool negative) {
    Pattern pattern  = assertion(Kind::WORD_BOUNDARY);
    pattern.set      = std::move(word);
    pattern.negative = negative;
    return pattern;
}

Pattern Pattern::look(Kind kind, Pattern inner, bool negative) {
    Pattern pattern    = assertion(kind);
    pattern.negative   = negative;
    pattern.needs_past = pattern.needs_past || inner.needs_past;
    pattern.depth      = inner.depth + 1;
    pattern.children.push_back(std::move(inner));
    return pattern;
}

Pattern Pattern::list(Kind kind, std::vector<Pattern> children) {
    if (children.size() == 1) {
        return std::move(children[0]);
    }
    Pattern pattern;
    pattern.kind = kind;
    for (const Pattern & child : children) {
        pattern.has_assertions = pattern.has_assertions || child.has_assertions;
        pattern.needs_past     = pattern.needs_past || child.needs_past;
        pattern.depth          = std::max(pattern.depth, child.depth + 1);
    }
    pattern.children = std::move(children);
    return pattern;
}

Pattern Pattern::repeat(Pattern one, uint32_t least, uint32_t most) {
    Pattern pattern;
    pattern.kind           = Kind::REPEAT;
    pattern.least          = least;
    pattern.most           = most;
    pattern.has_assertions = one.has_assertions;
    pattern.needs_past     = one.needs_past;
    pattern.depth          = one.depth + 1;
    pattern.children.push_back(std::move(one));
    return pattern;
}

}  // namespace pyg
