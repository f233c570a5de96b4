// Unknown keywords: annotations are allowed, and what is meant as a constraint is refused.
#include "boundary/guard.hpp"
#include "schema/keywords/keywords.hpp"

#include <algorithm>
#include <unordered_set>

namespace pyg {

namespace {

using Words = std::unordered_set<std::string>;

const Words & constraints() {
    static const Words all = {
        "type",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "properties",
        "required",
        "additionalProperties",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedProperties",
        "items",
        "prefixItems",
        "additionalItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "unevaluatedItems",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "decimalPlaces",  // pyggml's, the maximum number of decimals: other validators ignore it
    };
    return all;
}

// Annotations whose values are texts; with another value, the name is taken for that of a member.
const Words & text_annotations() {
    static const Words all = {
        "$anchor",
        "$comment",
        "$dynamicAnchor",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "deprecationMessage",
        "description",
        "id",
        "markdownDescription",
        "title",
    };
    return all;
}

// Annotations of the standard, of OpenAPI, of form generators, of editors, and of Google's models.
const Words & annotations() {
    static const Words all = {
        "$defs",
        "$recursiveAnchor",
        "$vocabulary",
        "contentSchema",
        "default",
        "defaultSnippets",
        "definitions",
        "deprecated",
        "discriminator",
        "doNotSuggest",
        "enumDescriptions",
        "enumNames",
        "errorMessage",
        "example",
        "examples",
        "externalDocs",
        "markdownEnumDescriptions",
        "nullable",
        "propertyOrder",
        "propertyOrdering",
        "readOnly",
        "tsType",
        "writeOnly",
        "xml",
    };
    return all;
}

constexpr double CUTOFF =
    0.85;  // of the similarity: "minimun" and "proprties" are misspelled, "note" and "content" are not
constexpr size_t SHORTEST = 4, LONGEST = 40;  // characters of a name that may be misspelled

bool is_annotation(const std::string & name, const JsonValue & value) {
    if (text_annotations().count(name) > 0) {
        return !value.is_object();
    }
    return annotations().count(name) > 0 || name.compare(0, 2, "x-") == 0 || name[0] == '_' || name[0] == '@';
}

// A name without the differences between conventions, as in minLength and min_length.
std::string plain(const std::string & name) {
    std::string result;
    for (char c : name) {
        if (c != '_' && c != '-') {
            result += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
        }
    }
    return result.compare(0, 1, "$") == 0 ? result.substr(1) : result;
}

// Number of equal characters by Ratcliff and Obershelp: of the longest common part, and of what is left and right of
// it.
size_t n_equal(const std::string & a, size_t a_begin, size_t a_end, const std::string & b, size_t b_begin,
               size_t b_end) {
    size_t best = 0, best_a = 0, best_b = 0;
    for (size_t i = a_begin; i < a_end; i++) {
        for (size_t j = b_begin; j < b_end; j++) {
            size_t n = 0;
            while (i + n < a_end && j + n < b_end && a[i + n] == b[j + n]) {
                n++;
            }
            if (n > best) {
                best   = n;
                best_a = i;
                best_b = j;
            }
        }
    }
    return best == 0 ? 0
                     : best + n_equal(a, a_begin, best_a, b, b_begin, best_b) +
                           n_equal(a, best_a + best, a_end, b, best_b + best, b_end);
}

double similarity(const std::string & a, const std::string & b) {
    return 2.0 * static_cast<double>(n_equal(a, 0, a.size(), b, 0, b.size())) /
           static_cast<double>(a.size() + b.size());
}

// The keyword that an unknown name is a misspelling of, or "".
std::string meant(const std::string & name) {
    const std::string wanted = plain(name);
    if (name.size() > LONGEST) {
        return "";
    }
    std::string best;
    double      best_similarity = 0;
    for (const std::string & keyword : constraints()) {
        const std::string candidate = plain(keyword);
        if (candidate == wanted) {
            return keyword;
        }
        const double most = 2.0 * static_cast<double>(std::min(candidate.size(), wanted.size())) /
                            static_cast<double>(candidate.size() + wanted.size());
        if (most < CUTOFF || candidate.size() < SHORTEST || name.size() < SHORTEST) {
            continue;
        }
        const double found = similarity(candidate, wanted);
        if (found >= CUTOFF && (found > best_similarity || (found == best_similarity && keyword > best))) {
            best            = keyword;
            best_similarity = found;
        }
    }
    return best;
}

void require_keyword(const JsonValue & schema, const std::vector<std::string> & unknown) {
    const std::string place = schema.pointer();
    for (const char * wrapper : {"json_schema", "schema", "input_schema", "inputSchema", "parameters", "function"}) {
        const JsonValue * inside = schema.find(wrapper);
        if (inside != nullptr && inside->is_object()) {
            const bool is_format = std::string(wrapper) == "schema";
            throw fail(PYG_ERR_GRAMMAR, "%s: the schema is inside of '%s': pass the value of '%s' alone%s",
                       place.c_str(), wrapper, wrapper,
                       is_format ? ", or response_format={'type': 'json_schema', 'json_schema': ...}" : "");
        }
    }
    const bool has_object = std::any_of(unknown.begin(), unknown.end(),
                                        [&](const std::string & name) { return schema.find(name)->is_object(); });
    if (unknown.size() < schema.names.size() && !has_object) {
        return;
    }
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(unknown.size(), 5); i++) {
        names += (i > 0 ? ", '" : "'") + unknown[i].substr(0, 100) + "'";
    }
    throw fail(
        PYG_ERR_GRAMMAR,
        "%s: no keyword of JSON schemas is here, only %s%s: put an object's members into 'properties', or begin the "
        "names of annotations with 'x-'",
        place.c_str(), names.c_str(), unknown.size() > 5 ? " ..." : "");
}

}  // namespace

bool is_constraint(const std::string & keyword) { return constraints().count(keyword) > 0; }

void require_known_keywords(const JsonValue & schema) {
    std::vector<std::string> unknown;
    bool                     has_constraint = false;
    for (size_t i = 0; i < schema.names.size(); i++) {
        const std::string & name = schema.names[i];
        if (is_constraint(name)) {
            has_constraint = true;
        } else if (!is_annotation(name, schema.items[i])) {
            unknown.push_back(name);
        }
    }
    for (const std::string & name : unknown) {
        const std::string keyword = meant(name);
        if (!keyword.empty() && schema.find(keyword) == nullptr) {
            throw fail(PYG_ERR_GRAMMAR,
                       "%s/%s: this is not a keyword of JSON schemas, but close to '%s': write '%s', or 'x-%s' for an "
                       "annotation",
                       schema.pointer().c_str(), name.c_str(), keyword.c_str(), keyword.c_str(), name.c_str());
        }
    }
    if (!unknown.empty() && !has_constraint) {
        require_keyword(schema, unknown);
    }
}

}  // namespace pyg
