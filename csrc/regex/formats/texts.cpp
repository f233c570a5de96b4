// Other formats: UUIDs (RFC 4122), JSON pointers (RFC 6901), file paths, regular expressions.
#include "regex/formats/format_parts.hpp"

namespace pyg {

namespace {

const std::string POINTER = "(?:/(?:[^~/]|~[01])*)*";

// `version`: the digit of RFC 9562, with its variant, or "" for any.
std::string uuid_pattern(const std::string & version) {
    const std::string hex = "[0-9A-Fa-f]";
    const std::string middle =
        version.empty() ? "(?:-" + hex + "{4}){3}" : "-" + hex + "{4}-" + version + hex + "{3}-[89ABab]" + hex + "{3}";
    return hex + "{8}" + middle + "-" + hex + "{12}";
}

}  // namespace

bool text_format(Languages & languages, const std::string & name, Language & result) {
    if (name == "uuid") {
        result = matched_by(languages, uuid_pattern(""));
    } else if (name.size() == 5 && name.compare(0, 4, "uuid") == 0 && name[4] >= '1' && name[4] <= '8') {
        result = matched_by(languages, uuid_pattern(name.substr(4)));
    } else if (name == "json-pointer") {
        result = matched_by(languages, POINTER);
    } else if (name == "relative-json-pointer") {
        result = matched_by(languages, "(?:0|[1-9][0-9]*)(?:#|" + POINTER + ")");
    } else if (name == "path") {  // pyggml's own: of files
        result = matched_by(languages, "[^\\u0000-\\u001f\\u007f\"\\\\]{1,200}");
    } else if (name == "regex") {
        result = regular_expressions(languages);
    } else {
        return false;
    }
    return true;
}

}  // namespace pyg
