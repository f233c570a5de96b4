// Addresses: hosts (RFC 1123), IPv4, IPv6 (RFC 4291), e-mail (RFC 5321, RFC 6531).
#include "regex/formats/format_parts.hpp"

namespace pyg {

namespace {

const std::string OCTET = "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])";

// "::" stands for at least one group of zeros. `last`: the last 32 bits, as two groups or as IPv4.
std::string ipv6_pattern(const std::string & ipv4) {
    const std::string group   = "[0-9A-Fa-f]{1,4}";
    const std::string last    = "(?:" + group + ":" + group + "|" + ipv4 + ")";
    std::string       pattern = "(?:(?:" + group + ":){6}" + last;
    for (int n_before = 0; n_before <= 7; n_before++) {  // groups before "::"
        const std::string before =
            n_before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(n_before - 1) + "}";
        const int most_after = 7 - n_before;
        pattern += "|" + before + "::";
        std::string after = "(?:" + group + ")?";
        if (most_after >= 2) {
            after = "(?:(?:" + group + ":){0," + std::to_string(most_after - 2) + "}" + last + "|" + group + ")?";
        }
        pattern += most_after == 0 ? "" : after;
    }
    return pattern + ")";
}

const std::string LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";

Language names_of_labels(Languages & languages, Language labels, const std::string & dot, uint32_t most_characters) {
    const Language more = languages.repeat(languages.concat(matched_by(languages, dot), labels), 0, UNBOUNDED);
    return languages.all_of({languages.concat(labels, more), languages.lengths(1, most_characters)});
}

// Letters and digits that IDNA 2008 (RFC 5892) allows in any place of any label: of Latin, Greek, Cyrillic, Japanese,
// Chinese and Korean. Others depend on their neighbours or on the direction of text.
const std::string IDN_LETTERS = "a-z0-9\\u{DF}-\\u{F6}\\u{F8}-\\u{FF}\\u{3AC}-\\u{3CE}\\u{430}-\\u{45F}\\u{3041}-"
                                "\\u{3096}\\u{30A1}-\\u{30FA}\\u{4E00}-\\u{9FA5}\\u{AC00}-\\u{D7A3}";

// A character takes at most five octets in punycode, a label four more. So labels of 11 characters have no more than
// 63, and names of 42 no more than 253.
Language idn_host_names(Languages & languages) {
    const Language labels =
        matched_by(languages, "[" + IDN_LETTERS + "](?:[" + IDN_LETTERS + "-]{0,9}[" + IDN_LETTERS + "])?");
    const Language hyphens = matched_by(languages, "..--.*");
    const Language plain   = languages.without(matched_by(languages, LABEL), hyphens);
    const Language any     = languages.any_of({plain, languages.without(labels, hyphens)});
    return languages.any_of({names_of_labels(languages, plain, "\\.", 253),
                             names_of_labels(languages, any, "[.\\u{3002}\\u{FF0E}\\u{FF61}]", 42)});
}

// `other`: characters beyond ASCII in sets, or "".
Language mailboxes(Languages & languages, const std::string & other) {
    const std::string atom    = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + other + "-]+";
    const std::string quoted  = "\"(?:[ !#-\\[\\]-~" + other + "]|\\\\[ -~])*\"";
    const std::string label   = "[A-Za-z0-9" + other + "](?:[A-Za-z0-9" + other + "-]*[A-Za-z0-9" + other + "])?";
    const std::string literal = "\\[(?:" + IPV4_PATTERN + "|[Ii][Pp][Vv]6:" + IPV6_PATTERN + ")\\]";
    const Language    locals =
        languages.all_of({matched_by(languages, atom + "(?:\\." + atom + ")*|" + quoted),
                          other.empty() ? languages.lengths(1, 64) : at_most_octets(languages, 64)});
    const Language domains = matched_by(languages, label + "(?:\\." + label + ")*|" + literal);
    const Language limited =
        languages.all_of({domains, other.empty() ? languages.lengths(1, 255) : at_most_octets(languages, 255)});
    return languages.concat(locals, languages.concat(languages.text("@"), limited));
}

// Characters beyond ASCII, without full stops and at signs of full width, which stand for those of ASCII.
const std::string BEYOND_ASCII = "\\u{80}-\\u{3001}\\u{3003}-\\u{D7FF}\\u{E000}-\\u{FF0D}\\u{FF0F}-\\u{FF1F}\\u{FF21}-"
                                 "\\u{FF60}\\u{FF62}-\\u{10FFFF}";

}  // namespace

Language host_names(Languages & languages, bool with_punycode) {
    const Language labels = matched_by(languages, LABEL);
    const Language ascii  = with_punycode ? labels : languages.without(labels, matched_by(languages, "[Xx][Nn]--.*"));
    return names_of_labels(languages, ascii, "\\.", 253);
}

const std::string IPV4_PATTERN = OCTET + "(?:\\." + OCTET + "){3}";
const std::string IPV6_PATTERN = ipv6_pattern(IPV4_PATTERN);

bool network_format(Languages & languages, const std::string & name, Language & result) {
    if (name == "ipv4") {
        result = matched_by(languages, IPV4_PATTERN);
    } else if (name == "ipv6") {
        result = matched_by(languages, IPV6_PATTERN);
    } else if (name == "ipvanyaddress") {
        result = matched_by(languages, IPV4_PATTERN + "|" + IPV6_PATTERN);
    } else if (name == "hostname") {
        result = host_names(languages, /*with_punycode =*/false);
    } else if (name == "idn-hostname") {
        result = idn_host_names(languages);
    } else if (name == "email") {
        result = mailboxes(languages, "");
    } else if (name == "idn-email") {
        result = mailboxes(languages, BEYOND_ASCII);
    } else {
        return false;
    }
    return true;
}

}  // namespace pyg
