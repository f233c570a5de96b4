// Formats by topic. Each function returns false if the name is none of its formats.
#pragma once

#include "regex/languages.hpp"

#include <string>

namespace pyg {

bool time_format(Languages & languages, const std::string & name, Language & result);
bool network_format(Languages & languages, const std::string & name, Language & result);
bool uri_format(Languages & languages, const std::string & name, Language & result);
bool text_format(Languages & languages, const std::string & name, Language & result);

// Shared pieces of expressions, in groups.
extern const std::string IPV4_PATTERN;
extern const std::string IPV6_PATTERN;

// HH:MM:60 with a fraction and an offset, of which the time in UTC is 23:59:60. `next_day`: those of which the local
// day is the one after UTC's.
Language leap_seconds(Languages & languages, bool next_day);

// Texts of at most so many octets in UTF-8.
Language at_most_octets(Languages & languages, uint32_t most);

// Host names of ASCII. Labels "xn--..." encode others (RFC 3492): which of them are valid is not regular.
Language host_names(Languages & languages, bool with_punycode);

// Regular expressions that are valid for certain.
Language regular_expressions(Languages & languages);

// The texts that an expression matches as a whole. It has neither anchors nor captures.
inline Language matched_by(Languages & languages, const std::string & pattern) {
    return languages.regex(pattern, RegexSyntax::ECMASCRIPT, true);
}

}  // namespace pyg
