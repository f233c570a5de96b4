// Schemas and the values that they allow, by the plain reading of their shapes; and the messages of those that are
// refused. The official tests run by measure_schemas, from data that is not part of this repository.
#include "boundary/guard.hpp"
#include "schema/compile.hpp"
#include "tests/support/schema_follower.hpp"
#include "tests/support/testing.hpp"

#include <cstdio>

namespace {

using namespace pyg;

struct Example {
    const char *              schema;
    std::vector<const char *> allowed, refused;
};

const std::vector<Example> EXAMPLES = {
    {"true", {"1", "{}", "[[]]", "1e400"}, {}},
    {R"({"type": ["integer", "null"]})", {"3", "-0", "2.0", "null"}, {"2.5", "\"3\"", "true"}},
    {R"({"minimum": 2.5, "exclusiveMaximum": 4, "multipleOf": 0.5})", {"2.5", "3", "\"x\"", "[]"}, {"2", "4", "2.7"}},
    {R"({"not": {"minimum": 5}})", {"4", "-1"}, {"5", "1e3", "\"x\""}},
    {R"({"type": "string", "minLength": 2, "pattern": "^a"})", {"\"ab\""}, {"\"a\"", "\"ba\"", "1"}},
    {R"({"enum": [1, "a", {"b": [1, null]}]})",
     {"1.0", "\"a\"", R"({"b": [1, null]})"},
     {"2", R"({"b": [1]})", R"({"b": [1, null], "c": 1})"}},
    {R"({"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false})",
     {R"({"a": 1})", "3"},
     {"{}", R"({"a": "x"})", R"({"a": 1, "b": 2})"}},
    {R"({"properties": {"a": false, "b": true}, "additionalProperties": false})",
     {"{}", R"({"b": 1})"},
     {R"({"a": 1})"}},
    {R"({"patternProperties": {"^a": {"type": "null"}, "z$": {"type": ["null", "integer"]}}, "additionalProperties": {"type": "string"}})",
     {R"({"ab": null, "z": 1, "x": "y"})"},
     {R"({"az": 1})", R"({"x": 1})"}},
    {R"({"propertyNames": {"enum": ["a", "b"]}, "minProperties": 2})",
     {R"({"a": 1, "b": 2})"},
     {R"({"a": 1})", R"({"a": 1, "c": 2})"}},
    {R"({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"maxProperties": 1}}})",
     {R"({"a": 1, "b": 1})", R"({"c": 1})"},
     {R"({"a": 1})", R"({"c": 1, "d": 1})"}},
    {R"({"items": {"type": "integer"}, "contains": {"minimum": 5}, "minContains": 2, "maxContains": 3})",
     {"[5, 1, 6]", "[5, 6, 7]"},
     {"[5]", "[5, 6, 7, 8]", "[5, 5, \"x\"]"}},
    {R"({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}], "additionalItems": {"type": "string"}})",
     {"[]", "[null, \"a\"]"},
     {"[1]", "[null, 1]"}},
    {R"({"uniqueItems": true, "items": {"type": "integer"}})", {"[1, 2]"}, {"[1, 1.0]"}},
    {R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})", {"1", "2.5", "\"x\""}, {"3", "1.5"}},
    {R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"properties": {"c": {"const": 1}}, "required": ["c"]}]})",
     {R"({"a": 1})", R"({"b": 1})", R"({"c": 1})", R"({"a": 1, "c": 2})"},
     {"{}", R"({"a": 1, "b": 1})", R"({"a": 1, "c": 1})"}},
    {R"({"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["x"]}, "else": {"maxProperties": 1}})",
     {R"({"k": 1, "x": 1})", "{}", R"({"k": 2})"},
     {R"({"k": 1})", R"({"k": 2, "x": 1})"}},
    {R"({"not": {"properties": {"a": {"type": "string"}}, "required": ["a"]}})",
     {"{}", R"({"a": 1})"},
     {R"({"a": "x"})", "3"}},
    {R"({"allOf": [{"properties": {"a": true}}], "properties": {"b": true}, "unevaluatedProperties": false})",
     {R"({"a": 1, "b": 2})"},
     {R"({"c": 1})"}},
    {R"({"prefixItems": [true], "anyOf": [{"prefixItems": [true, {"type": "null"}]}, true], "unevaluatedItems": {"type": "string"}})",
     {"[1]", "[1, null, \"a\"]", "[1, \"a\"]"},
     {"[1, 2]", "[1, null, 2]"}},
    {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}, "additionalProperties": false}}})",
     {"{}", R"({"next": {"next": {}}})"},
     {R"({"next": 1})"}},
    {R"({"$id": "https://example.com/a", "$ref": "b", "$defs": {"x": {"$id": "b", "$ref": "#y", "$defs": {"z": {"$anchor": "y", "type": "null"}}}}})",
     {"null"},
     {"1"}},
    {R"({"properties": {"a/b~c": {"type": "null"}}, "items": {"$ref": "#/properties/a~1b~0c"}})",
     {"[null]", R"({"a/b~c": null})"},
     {"[1]"}},
    {R"({"type": "number", "decimalPlaces": 2})", {"1.25", "3", "-0.5"}, {"1.255", "1e5"}},
    {R"({"decimalPlaces": 0})", {"0", "-10", "null"}, {"1.5"}},
    // What violates a format of which only a part is generated.
    {R"({"not": {"format": "hostname"}})", {"\"a_b\""}, {"3", "\"a.b\"", "\"xn--nxasmq6b\""}},
    {R"({"propertyNames": {"not": {"format": "regex"}}})", {"{}", "[]"}, {R"({"a": 1})", "{\"[\": 1, \"(?=a)b\": 1}"}},
    {R"({"oneOf": [{"format": "hostname"}, {"minLength": 3}]})", {"\"a\"", "\"a_b\""}, {"\"xn--nxasmq6b\"", "\"abc\""}},
    // What each draft makes of the same keywords.
    {R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "allOf": [{"items": [{"type": "integer"}]}, {"items": [{"minimum": 5}, {"type": "null"}]}]})",
     {"[]", "[5]", "[6, null, 1]"},
     {"[4]", "[5.5]", "[5, 1]"}},
    {R"({"$schema": "http://json-schema.org/draft-07/schema#", "oneOf": [{"$ref": "#/definitions/a", "type": "string"}, {"type": "string"}], "definitions": {"a": {"type": "integer"}}})",
     {"3", "\"a\""},
     {"null", "3.5"}},
    {R"({"oneOf": [{"$ref": "#/$defs/a", "maximum": 5}, {"type": "string"}], "$defs": {"a": {"type": "integer"}}})",
     {"3", "\"a\""},
     {"6"}},
    {R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "const": 3, "maximum": 9, "exclusiveMaximum": true})",
     {"4"},
     {"9"}},
    {R"({"$id": "https://example.com/a", "properties": {"p": {"$id": "b", "$ref": "#/$defs/z", "$defs": {"z": {"type": "null"}}}}, "$defs": {"z": {"type": "integer"}}})",
     {R"({"p": null})"},
     {R"({"p": 1})"}},
    {R"({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.com/a", "properties": {"p": {"$id": "b", "properties": {"q": {"$ref": "#/definitions/z"}}, "definitions": {"z": {"type": "null"}}}}, "definitions": {"z": {"type": "integer"}}})",
     {R"({"p": {"q": null}})"},
     {R"({"p": {"q": 1}})"}},
};

struct Refusal {
    const char * schema;
    const char * message;  // its beginning
};

const std::vector<Refusal> REFUSALS = {
    {"{", "the schema is not valid JSON: expected a name in double quotes: line 1 column 2"},
    {"5", "#: a schema must be an object or a boolean, not 5"},
    {R"({"type": "nonsense"})", "#/type: unknown type \"nonsense\""},
    {R"({"type": 5})", "#/type: unknown type 5"},
    {R"({"items": 5})", "#/items: a schema must be an object or a boolean, not 5"},
    {R"({"minimum": "x"})", "#/minimum: must be a number, not \"x\""},
    {R"({"enum": [4], "multipleOf": 0})", "#/multipleOf: must be a positive number, not 0"},
    {R"({"properties": 5})", "#/properties: must be an object"},
    {R"({"prefixItems": 3})", "#/prefixItems: must be a list of schemas"},
    {R"({"required": 5})", "#/required: must be a list of names"},
    {R"({"$ref": "#/nowhere"})", "#/$ref: there is nothing at #/nowhere"},
    {R"({"$ref": "https://example.com/s.json"})",
     "#/$ref: 'https://example.com/s.json' does not point into this schema"},
    {R"({"$ref": "#"})", "#/$ref: # refers to itself"},
    {R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})", "#/anyOf/1/$ref: # refers to itself"},
    {R"({"$schema": "https://example.com/own"})", "#/$schema: unknown dialect"},
    {R"({"minItems": 2, "maxItems": 1, "type": "array"})", "#: minItems is 2 and maxItems is 1"},
    {R"({"type": "integer", "minimum": 3, "maximum": 1})", "#: no integer is between 3 and 1"},
    {R"({"enum": []})", "#: no value can match"},
    {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "#: no value can match"},
    {R"({"type": "object", "required": ["a"], "additionalProperties": false})",
     "#/required: \"a\" is required, but no member"},
    {R"({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]})",
     "#: no value can match, because every one contains another without an end"},
    {R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})",
     "#: no value can match, because every one contains another without an end"},
    {R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})",
     "#/$defs/b/$ref: #/$defs/a refers to itself"},
    {R"({"properties": {"a": {"minimun": 5}}})",
     "#/properties/a/minimun: this is not a keyword of JSON schemas, but close to 'minimum'"},
    {R"({"ref": "#"})", "#/ref: this is not a keyword of JSON schemas, but close to '$ref'"},
    {R"({"name": {"type": "string"}})", "#: no keyword of JSON schemas is here, only 'name'"},
    {R"({"name": "cat", "schema": {"type": "object"}})", "#: the schema is inside of 'schema': pass"},
    {R"({"type": "array", "uniqueItems": true, "minItems": 2, "items": {"type": "object"}})",
     "#/uniqueItems: a grammar cannot express"},
};

JsonValue parsed(const char * text) {
    JsonValue value;
    parse_json(text, value);
    return value;
}

void check_example(const Example & example) {
    const std::unique_ptr<SchemaShapes> shapes = compile_schema(example.schema, {});
    SchemaFollower                      follower(*shapes);
    for (const bool expected : {true, false}) {
        for (const char * text : expected ? example.allowed : example.refused) {
            JsonValue value;
            parse_json(text, value);
            if (follower.allows(value) != expected) {
                std::fprintf(stderr, "%s: %s %s\n", example.schema, expected ? "refuses" : "allows", text);
                std::exit(1);
            }
        }
    }
}

void check_refusal(const Refusal & refusal) {
    try {
        compile_schema(refusal.schema, {});
    } catch (const Failure & failure) {
        if (failure.message.compare(0, std::strlen(refusal.message), refusal.message) != 0) {
            std::fprintf(stderr, "%s: %s\n", refusal.schema, failure.message.c_str());
            std::exit(1);
        }
        return;
    }
    std::fprintf(stderr, "%s: not refused\n", refusal.schema);
    std::exit(1);
}

void check_options() {
    SchemaOptions closed;
    closed.known_members_only = true;
    const auto shapes         = compile_schema(R"({"properties": {"a": true}})", closed);
    CHECK(SchemaFollower(*shapes).allows(parsed(R"({"a": 1})")));
    CHECK(!SchemaFollower(*shapes).allows(parsed(R"({"b": 1})")));

    SchemaOptions free;
    free.requires_free_members = true;
    const char * schema = R"({"type": "object", "not": {"properties": {"a": true}, "additionalProperties": false}})";
    const auto   some   = compile_schema(schema, free);
    CHECK(SchemaFollower(*some).allows(parsed(R"({"a": 1, "b": 1})")));
    CHECK(!SchemaFollower(*some).allows(parsed(R"({"a": 1})")));

    const std::string huge = "1" + std::string(400, '0');  // no double holds it
    const auto        one  = compile_schema(R"({"const": 1e400})", {});
    CHECK(SchemaFollower(*one).allows(parsed(huge.c_str())));
    CHECK(!SchemaFollower(*one).allows(parsed((huge + "0").c_str())));

    std::string deep = "{}";
    for (int i = 0; i < 2000; i++) {
        deep = "{\"items\":" + deep + "}";
    }
    check_refusal({deep.c_str(), "the schema is not valid JSON: it is nested too deeply"});
}

}  // namespace

int main() {
    for (const Example & example : EXAMPLES) {
        check_example(example);
    }
    for (const Refusal & refusal : REFUSALS) {
        check_refusal(refusal);
    }
    check_options();
    return 0;
}
