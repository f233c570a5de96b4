// JSON values, as a schema's text has them: numbers stay text, so that they are exact.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

enum class JsonKind : uint8_t { NIL, NO, YES, NUMBER, STRING, ARRAY, OBJECT };

// A value and its children. Children refer to their parent: the root must not move.
struct JsonValue {
    JsonKind                 kind = JsonKind::NIL;
    std::string              text;   // of a string: without escapes, UTF-8; of a number: its spelling
    std::vector<std::string> names;  // of an object's members, in order and distinct
    std::vector<JsonValue>   items;  // of an array; of an object, one value for each name
    const JsonValue *        parent = nullptr;

    bool is_string() const { return kind == JsonKind::STRING; }
    bool is_number() const { return kind == JsonKind::NUMBER; }
    bool is_array() const { return kind == JsonKind::ARRAY; }
    bool is_object() const { return kind == JsonKind::OBJECT; }
    bool is_boolean() const { return kind == JsonKind::YES || kind == JsonKind::NO; }

    const JsonValue * find(const std::string & name) const;  // a member, or nullptr

    // "#/properties/a~1b/items/0", of a value inside of a root. With `most` characters, long names are cut.
    std::string pointer() const;

    std::string excerpt() const;  // its text, at most 40 characters, for messages

  private:
    friend class JsonParser;
    std::vector<uint32_t> sorted_;  // indices of names in their order, of large objects
};

// Parse a text into `root`. Of several members with one name, the last one counts. PYG_ERR_GRAMMAR, with line and
// column: the text is not JSON, not UTF-8, nested too deeply, or has an unpaired surrogate.
void parse_json(const std::string & text, JsonValue & root);

}  // namespace pyg
