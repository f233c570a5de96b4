// The keywords of one schema, read and checked.
#pragma once

#include "schema/compile.hpp"
#include "schema/keywords/document.hpp"

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pyg {

// Types of values, as bits.
enum : uint8_t {
    TYPE_NULL    = 1,
    TYPE_BOOLEAN = 2,
    TYPE_STRING  = 4,
    TYPE_NUMBER  = 8,
    TYPE_INTEGER = 16,  // numbers that are integers; a subset of TYPE_NUMBER
    TYPE_OBJECT  = 32,
    TYPE_ARRAY   = 64,
    TYPE_ANY     = 127,
};

using NameId = uint32_t;

// Names of members, as numbers.
class Names {
  public:
    NameId              id(const std::string & name);
    const std::string & text(NameId id) const { return *texts_[id]; }
    size_t              size() const { return texts_.size(); }

  private:
    std::unordered_map<std::string, NameId> ids_;
    std::vector<const std::string *>        texts_;
};

// One schema. What it does not say has its neutral value: nullptr, no elements, no bounds.
struct Schema {
    using Named = std::vector<std::pair<NameId, const Schema *>>;

    const JsonValue * json    = nullptr;  // for messages; of synthetic schemas, where they come from
    bool              is_read = false;
    Draft             draft   = Draft::DRAFT_2020_12;

    bool    is_never   = false;  // `false`
    bool    constrains = false;  // false: every value matches
    uint8_t types      = TYPE_ANY;

    bool                           has_values = false;  // enum and const: one of `values`
    std::vector<const JsonValue *> values;

    const std::string * pattern    = nullptr;
    const std::string * format     = nullptr;
    uint32_t            min_length = 0, max_length = UNBOUNDED;

    const std::string * minimum = nullptr, *above = nullptr, *maximum = nullptr, *below = nullptr;
    const std::string * multiple_of    = nullptr;
    uint32_t            decimal_places = UNBOUNDED;

    bool                                                        has_properties = false;
    Named                                                       properties;
    std::vector<std::pair<const std::string *, const Schema *>> patterns;  // patternProperties
    const Schema *                                              additional = nullptr, *property_names = nullptr;
    const Schema *                                              unevaluated_properties = nullptr;
    std::vector<NameId>                                         required;
    std::vector<std::pair<NameId, std::vector<NameId>>>         dependent_required;
    Named                                                       dependent_schemas;
    uint32_t                                                    min_members = 0, max_members = UNBOUNDED;

    std::vector<const Schema *> prefix;  // of the first items
    const Schema *              items = nullptr, *unevaluated_items = nullptr;
    const Schema *              contains     = nullptr;
    uint32_t                    min_contains = 1, max_contains = UNBOUNDED;
    uint32_t                    min_items = 0, max_items = UNBOUNDED;
    bool                        unique = false;

    std::vector<const Schema *> all_of, any_of, one_of;
    bool                        has_any_of = false, has_one_of = false;  // also if empty: nothing matches
    const Schema *              negated = nullptr, *condition = nullptr, *then = nullptr, *otherwise = nullptr;
    const Schema *              ref              = nullptr;
    const Schema *              dynamic_ref      = nullptr;  // where it leads without a dynamic scope
    const std::string *         dynamic_anchor   = nullptr;  // that it looks up in the dynamic scope; nullptr: none
    bool                        is_recursive_ref = false;

    // A reference without any other keyword.
    bool     is_only_ref() const { return ref != nullptr && n_keywords == 1; }
    uint32_t n_keywords = 0;  // that constrain values
};

// Reads the schemas of a document when they are asked for.
class Schemas {
  public:
    Schemas(const Document & document, const SchemaOptions & options) : document_(document), options_(options) {}

    // The schema at a place of the document. PYG_ERR_GRAMMAR, with the place, if it is malformed.
    const Schema & read(const Schema & schema);
    Schema &       at(const JsonValue & json);  // not read yet

    Schema &       synthetic(const JsonValue & origin);  // to be filled by the caller
    const Schema & constant(const JsonValue & value);    // of values equal to this one

    Names            names;
    const Document & document() const { return document_; }

  private:
    const Document &                                document_;
    const SchemaOptions &                           options_;
    std::deque<Schema>                              all_;
    std::unordered_map<const JsonValue *, Schema *> at_, constants_;

    friend class KeywordReader;
};

// PYG_ERR_GRAMMAR: a keyword of this schema is misspelled, or it consists of unknown keywords. `schema` is an object.
void require_known_keywords(const JsonValue & schema);

// True for keywords that constrain values.
bool is_constraint(const std::string & keyword);

}  // namespace pyg
