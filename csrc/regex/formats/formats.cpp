// Languages of JSON Schema's formats.
#include "regex/formats.hpp"

#include "regex/formats/format_parts.hpp"

namespace pyg {

bool format_language(Languages & languages, const std::string & name, Language & result) {
    return time_format(languages, name, result) || network_format(languages, name, result) ||
           uri_format(languages, name, result) || text_format(languages, name, result);
}

Language possible_format(Languages & languages, const std::string & name, Language format) {
    return name == "hostname"                          ? host_names(languages, /*with_punycode =*/true)
           : name == "idn-hostname" || name == "regex" ? Languages::ANYTHING
                                                       : format;
}

}  // namespace pyg
