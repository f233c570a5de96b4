// Languages of JSON Schema's formats.
#include "regex/formats.hpp"

#include "regex/formats/format_parts.hpp"

namespace pyg {

bool format_language(Languages & languages, const std::string & name, Language & result) {
    return time_format(languages, name, result) || network_format(languages, name, result) ||
           uri_format(languages, name, result) || text_format(languages, name, result);
}

}  // namespace pyg
