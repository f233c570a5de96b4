// URIs (RFC 3986), IRIs (RFC 3987) and URI templates (RFC 6570).
#include "regex/formats/format_parts.hpp"

namespace pyg {

namespace {

const std::string PERCENT    = "%[0-9A-Fa-f]{2}";
const std::string DELIMS     = "!$&'()*+,;=";
const std::string UNRESERVED = "A-Za-z0-9._~-";  // the hyphen is last in its set
// ucschar and iprivate of RFC 3987.
const std::string UCS =
    "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}"
    "\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}"
    "\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}";
const std::string PRIVATE = "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";

// `ucs` and `private_use` are "" for URIs. `relative`: references without a scheme, too.
std::string uri_pattern(const std::string & ucs, const std::string & private_use, bool relative) {
    const auto one_of = [&](const std::string & more) {
        return "(?:[" + more + DELIMS + ucs + UNRESERVED + "]|" + PERCENT + ")";
    };
    const std::string segment       = one_of(":@") + "*";
    const std::string filled        = one_of(":@") + "+";
    const std::string without_colon = one_of("@") + "+";
    const std::string future        = "[Vv][0-9A-Fa-f]+\\.[:" + DELIMS + UNRESERVED + "]+";
    const std::string host          = "(?:\\[(?:" + IPV6_PATTERN + "|" + future + ")\\]|" + one_of("") + "*)";
    const std::string authority     = "//(?:" + one_of(":") + "*@)?" + host + "(?::[0-9]*)?(?:/" + segment + ")*";
    const std::string absolute      = "/(?:" + filled + "(?:/" + segment + ")*)?";
    const std::string rest      = "(?:\\?(?:" + one_of(":@/?" + private_use) + ")*)?(?:#(?:" + one_of(":@/?") + ")*)?";
    const auto        hierarchy = [&](const std::string & first) {
        return "(?:" + authority + "|" + absolute + "|" + first + "(?:/" + segment + ")*|)";
    };
    const std::string with_scheme = "[A-Za-z][A-Za-z0-9+.-]*:" + hierarchy(filled) + rest;
    return relative ? with_scheme + "|" + hierarchy(without_colon) + rest : with_scheme;
}

std::string uri_template_pattern() {
    const std::string literal   = "[!#$&'(-;=?-\\[\\]_a-z~" + UCS + PRIVATE + "]|" + PERCENT;
    const std::string letter    = "(?:[A-Za-z0-9_]|" + PERCENT + ")";
    const std::string variable  = letter + "(?:\\.?" + letter + ")*(?::[1-9][0-9]{0,3}|\\*)?";
    const std::string operators = "[+#./;?&=,!@|]";
    return "(?:" + literal + "|\\{" + operators + "?" + variable + "(?:," + variable + ")*\\})*";
}

}  // namespace

bool uri_format(Languages & languages, const std::string & name, Language & result) {
    const bool is_reference = name == "uri-reference" || name == "iri-reference";
    if (name == "uri" || name == "uri-reference") {
        result = matched_by(languages, uri_pattern("", "", is_reference));
    } else if (name == "iri" || name == "iri-reference") {
        result = matched_by(languages, uri_pattern(UCS, PRIVATE, is_reference));
    } else if (name == "uri-template") {
        result = matched_by(languages, uri_template_pattern());
    } else {
        return false;
    }
    return true;
}

}  // namespace pyg
