// Languages of JSON Schema's formats.
#pragma once

#include "regex/languages.hpp"

#include <string>

namespace pyg {

// The texts of a format, by its RFC: date, time, date-time (with leap seconds as RFC 3339 has them, and days of months
// exactly, leap years too), duration, email, idn-email, hostname, idn-hostname, ipv4, ipv6, uri, uri-reference, iri,
// iri-reference, uri-template, uuid, json-pointer, relative-json-pointer, regex; and pyggml's own local-date-time,
// local-time and path, which pyggml.schema_of writes. False if the format is unknown, which JSON Schema says to ignore.
//
// Some are not regular, and the result is a part of them: of regex, hostname (without punycode) and idn-hostname.
bool format_language(Languages & languages, const std::string & name, Language & result);

// At least the texts of a format, of which format_language() returned `format`.
Language possible_format(Languages & languages, const std::string & name, Language format);

}  // namespace pyg
