// Compilation of JSON schemas.
#pragma once

#include "schema/shapes.hpp"

#include <memory>
#include <string>

namespace pyg {

struct SchemaOptions {
    // False: members that the schema does not name are allowed where it does not forbid them, as JSON Schema says.
    // True: an object with `properties` or `patternProperties` has no others unless `additionalProperties` or
    // `unevaluatedProperties` mentions them.
    bool known_members_only = false;

    // Values have a type that the keywords are for: {"properties": ...} without `type` means objects, where JSON Schema
    // allows values of other types, too.
    bool keywords_imply_types = false;

    // Refuse a misspelled keyword ("minimun"), and a schema of nothing but unknown keywords; else they are ignored, as
    // the specification says.
    bool refuse_misspelled = true;

    // Texts have the formats that regex/formats.hpp knows; else `format` is an annotation.
    bool assert_formats = true;

    // The result may say that a member without a fixed name is required (FreeMembers::required), as the negation of
    // `additionalProperties: false` does; else such schemas are refused.
    bool requires_free_members = false;

    // Values as usual programs read them: integers without a fraction (2, not 2.0), times without leap seconds.
    bool plain_values = false;
};

// Every value that the result allows matches the schema, in the draft that it declares ($schema; 2020-12 without one).
// PYG_ERR_GRAMMAR, with the JSON pointer of the place and the reason: the text is not JSON, the schema is malformed,
// no value can match it, or it cannot be expressed (named keyword).
std::unique_ptr<SchemaShapes> compile_schema(const std::string & json, const SchemaOptions & options);

}  // namespace pyg
