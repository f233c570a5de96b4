#include "schema/keywords/keywords.hpp"

#include "boundary/guard.hpp"
#include "regex/numbers/numbers.hpp"

#include <algorithm>

namespace pyg {

NameId Names::id(const std::string & name) {
    const auto [place, is_new] = ids_.emplace(name, static_cast<NameId>(texts_.size()));
    if (is_new) {
        texts_.push_back(&place->first);
    }
    return place->second;
}

// Reads the keywords of one schema.
class KeywordReader {
  public:
    KeywordReader(Schemas & schemas, Schema & schema) : schemas_(schemas), schema_(schema), json_(*schema.json) {}

    void read() {
        schema_.draft = schemas_.document_.draft_of(json_);
        if (json_.is_boolean()) {
            schema_.is_never   = json_.kind == JsonKind::NO;
            schema_.constrains = schema_.is_never;
            return;
        }
        if (!json_.is_object()) {
            throw wrong("", "a schema must be an object or a boolean", json_);
        }
        if (schemas_.options_.refuse_misspelled) {
            require_known_keywords(json_);
        }
        for (const std::string & name : json_.names) {
            schema_.n_keywords += is_constraint(name);
        }
        schema_.constrains = schema_.n_keywords > 0;
        read_references();
        if (schema_.ref != nullptr && schema_.draft <= Draft::DRAFT_7) {
            schema_.n_keywords = 1;  // its siblings are ignored
            return;
        }
        read_general();
        read_text_and_numbers();
        read_objects();
        read_arrays();
    }

  private:
    Schemas &         schemas_;
    Schema &          schema_;
    const JsonValue & json_;

    Failure wrong(const std::string & keyword, const std::string & what, const JsonValue & value) const {
        return fail(PYG_ERR_GRAMMAR, "%s%s: %s, not %s", json_.pointer().c_str(), keyword.c_str(), what.c_str(),
                    value.excerpt().c_str());
    }

    Failure wrong_without_value(const char * keyword, const char * what) const {
        return fail(PYG_ERR_GRAMMAR, "%s/%s: %s", json_.pointer().c_str(), keyword, what);
    }

    const JsonValue * get(const char * keyword) const { return json_.find(keyword); }
    bool              since(Draft draft) const { return schema_.draft >= draft; }

    const Schema * sub(const JsonValue & value) { return &schemas_.at(value); }

    const Schema * schema_at(const char * keyword) {
        const JsonValue * value = get(keyword);
        return value == nullptr ? nullptr : sub(*value);
    }

    std::vector<const Schema *> schemas_at(const char * keyword) {
        const JsonValue *           value = get(keyword);
        std::vector<const Schema *> result;
        if (value != nullptr) {
            if (!value->is_array()) {
                throw wrong_without_value(keyword, "must be a list of schemas");
            }
            for (const JsonValue & each : value->items) {
                result.push_back(sub(each));
            }
        }
        return result;
    }

    const JsonValue * object_at(const char * keyword) {
        const JsonValue * value = get(keyword);
        if (value != nullptr && !value->is_object()) {
            throw wrong_without_value(keyword, "must be an object of schemas");
        }
        return value;
    }

    const std::string * text_at(const char * keyword, const char * what = "must be a string") {
        const JsonValue * value = get(keyword);
        if (value != nullptr && !value->is_string()) {
            throw wrong("/" + std::string(keyword), what, *value);
        }
        return value == nullptr ? nullptr : &value->text;
    }

    const std::string * number_at(const char * keyword) {
        const JsonValue * value = get(keyword);
        if (value != nullptr && !value->is_number()) {
            throw wrong("/" + std::string(keyword), "must be a number", *value);
        }
        return value == nullptr ? nullptr : &value->text;
    }

    uint32_t count_at(const char * keyword, uint32_t otherwise) {
        const std::string * number = number_at(keyword);
        if (number == nullptr) {
            return otherwise;
        }
        if (!is_integer(*number) || compare_numbers(*number, "0") < 0) {
            throw wrong("/" + std::string(keyword), "must be an integer of at least 0", *get(keyword));
        }
        if (compare_numbers(*number, "1000000000") > 0) {
            if (otherwise == UNBOUNDED) {
                return UNBOUNDED;
            }
            throw wrong_without_value(keyword, "too large for a grammar");
        }
        uint32_t low = 0, high = 1'000'000'000;  // it may be spelled as 1e3 or 2.0
        while (low < high) {
            const uint32_t middle = low + (high - low) / 2;
            if (compare_numbers(std::to_string(middle), *number) < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    std::vector<NameId> names_in(const JsonValue & value, const char * keyword) {
        std::vector<NameId> result;
        const bool are_names = value.is_array() && std::all_of(value.items.begin(), value.items.end(),
                                                               [](const JsonValue & each) { return each.is_string(); });
        if (!are_names) {
            throw wrong_without_value(keyword, "must be a list of names");
        }
        for (const JsonValue & each : value.items) {
            result.push_back(schemas_.names.id(each.text));
        }
        return result;
    }

    void read_references() {
        const Document & document = schemas_.document_;
        if (const std::string * ref = text_at("$ref")) {
            schema_.ref = sub(document.resolve(json_, "$ref", *ref));
        }
        const std::string * dynamic = schema_.draft == Draft::DRAFT_2020_12 ? text_at("$dynamicRef") : nullptr;
        if (dynamic != nullptr) {
            const JsonValue & target = document.resolve(json_, "$dynamicRef", *dynamic);
            const JsonValue * anchor = target.is_object() ? target.find("$dynamicAnchor") : nullptr;
            const size_t      hash   = dynamic->find('#');
            if (anchor != nullptr && anchor->is_string() && hash != std::string::npos &&
                dynamic->compare(hash + 1, std::string::npos, anchor->text) == 0) {
                schema_.dynamic_anchor = &anchor->text;
            }
            schema_.dynamic_ref = sub(target);
        }
        const std::string * recursive = schema_.draft == Draft::DRAFT_2019_09 ? text_at("$recursiveRef") : nullptr;
        if (recursive != nullptr) {
            const JsonValue & target = document.resolve(json_, "$recursiveRef", *recursive);
            schema_.dynamic_ref      = sub(target);
            schema_.is_recursive_ref = document.resources()[document.resource_of(target)].is_recursive;
        }
    }

    void read_general() {
        read_types();
        read_values();
        const auto all_of = schemas_at("allOf");
        schema_.all_of.insert(schema_.all_of.begin(), all_of.begin(), all_of.end());
        schema_.any_of     = schemas_at("anyOf");
        schema_.one_of     = schemas_at("oneOf");
        schema_.has_any_of = get("anyOf") != nullptr;
        schema_.has_one_of = get("oneOf") != nullptr;
        for (const char * keyword : {"allOf", "anyOf", "oneOf"}) {
            if (get(keyword) != nullptr && get(keyword)->items.empty()) {
                throw wrong_without_value(keyword, "must be a list of schemas");
            }
        }
        schema_.negated = schema_at("not");
        if (since(Draft::DRAFT_7)) {
            schema_.condition = schema_at("if");
            schema_.then      = schema_.condition == nullptr ? nullptr : schema_at("then");
            schema_.otherwise = schema_.condition == nullptr ? nullptr : schema_at("else");
        }
    }

    void read_types() {
        const JsonValue * value = get("type");
        if (value == nullptr) {
            return;
        }
        schema_.types = 0;
        if (!value->is_array()) {
            schema_.types = type_named(*value);
            return;
        }
        for (const JsonValue & each : value->items) {
            schema_.types |= type_named(each);
        }
    }

    uint8_t type_named(const JsonValue & value) const {
        static const std::pair<const char *, uint8_t> types[] = {
            {"object", TYPE_OBJECT},   {"array", TYPE_ARRAY},
            {"string", TYPE_STRING},   {"number", TYPE_NUMBER | TYPE_INTEGER},
            {"integer", TYPE_INTEGER}, {"boolean", TYPE_BOOLEAN},
            {"null", TYPE_NULL},
        };
        for (const auto & [name, type] : types) {
            if (value.is_string() && value.text == name) {
                return type;
            }
        }
        const bool is_response_format =
            value.is_string() && (value.text == "json_object" || value.text == "json_schema");
        throw fail(PYG_ERR_GRAMMAR, "%s/type: unknown type %s%s", json_.pointer().c_str(), value.excerpt().c_str(),
                   is_response_format ? ": pass a response format as response_format"
                                      : "; known are object, array, string, number, integer, boolean, null");
    }

    void read_values() {
        const JsonValue * listed = get("enum");
        const JsonValue * single = since(Draft::DRAFT_6) ? get("const") : nullptr;
        if (listed != nullptr && !listed->is_array()) {
            throw wrong("/enum", "must be a list of values", *listed);
        }
        schema_.has_values = listed != nullptr;
        for (size_t i = 0; listed != nullptr && i < listed->items.size(); i++) {
            schema_.values.push_back(&listed->items[i]);
        }
        if (single == nullptr) {
            return;
        }
        if (listed != nullptr) {  // both: a conjunction
            schema_.all_of.push_back(&schemas_.constant(*single));
            return;
        }
        schema_.has_values = true;
        schema_.values.push_back(single);
    }

    void read_text_and_numbers() {
        schema_.pattern    = text_at("pattern");
        schema_.format     = text_at("format");
        schema_.min_length = count_at("minLength", 0);
        schema_.max_length = count_at("maxLength", UNBOUNDED);
        schema_.minimum    = number_at("minimum");
        schema_.maximum    = number_at("maximum");
        read_exclusive("exclusiveMinimum", schema_.minimum, schema_.above);
        read_exclusive("exclusiveMaximum", schema_.maximum, schema_.below);
        schema_.multiple_of = number_at("multipleOf");
        if (schema_.multiple_of != nullptr && compare_numbers(*schema_.multiple_of, "0") <= 0) {
            throw wrong("/multipleOf", "must be a positive number", *get("multipleOf"));
        }
        schema_.decimal_places = count_at("decimalPlaces", UNBOUNDED);
    }

    // A number, or in draft 4 (and in schemas that do not say their draft) a flag of the inclusive bound.
    void read_exclusive(const char * keyword, const std::string *& inclusive, const std::string *& exclusive) {
        const JsonValue * value = get(keyword);
        if (value == nullptr || !value->is_boolean()) {
            exclusive = number_at(keyword);
        } else if (value->kind == JsonKind::YES) {
            exclusive = inclusive;
            inclusive = nullptr;
        }
    }

    void read_objects() {
        if (const JsonValue * properties = get("properties")) {
            if (!properties->is_object()) {
                throw wrong_without_value("properties", "must be an object");
            }
            schema_.has_properties = true;
            for (size_t i = 0; i < properties->names.size(); i++) {
                schema_.properties.emplace_back(schemas_.names.id(properties->names[i]), sub(properties->items[i]));
            }
        }
        if (const JsonValue * patterns = object_at("patternProperties")) {
            for (size_t i = 0; i < patterns->names.size(); i++) {
                schema_.patterns.emplace_back(&patterns->names[i], sub(patterns->items[i]));
            }
        }
        schema_.additional  = schema_at("additionalProperties");
        schema_.min_members = count_at("minProperties", 0);
        schema_.max_members = count_at("maxProperties", UNBOUNDED);
        if (const JsonValue * required = get("required")) {
            schema_.required = names_in(*required, "required");
        }
        if (since(Draft::DRAFT_6)) {
            schema_.property_names = schema_at("propertyNames");
        }
        read_dependencies("dependencies");
        if (since(Draft::DRAFT_2019_09)) {
            schema_.unevaluated_properties = schema_at("unevaluatedProperties");
            read_dependencies("dependentRequired");
            read_dependencies("dependentSchemas");
        }
    }

    void read_dependencies(const char * keyword) {
        const JsonValue * all = object_at(keyword);
        for (size_t i = 0; all != nullptr && i < all->names.size(); i++) {
            const NameId      name = schemas_.names.id(all->names[i]);
            const JsonValue & each = all->items[i];
            if (each.is_array()) {
                schema_.dependent_required.emplace_back(name, names_in(each, keyword));
            } else {
                schema_.dependent_schemas.emplace_back(name, sub(each));
            }
        }
    }

    void read_arrays() {
        const JsonValue * items = get("items");
        if (since(Draft::DRAFT_2020_12)) {
            schema_.prefix = schemas_at("prefixItems");
        }
        if (items != nullptr && items->is_array()) {  // drafts up to 2019-09
            if (schema_.prefix.empty()) {
                schema_.prefix = schemas_at("items");
            }
            schema_.items = schema_at("additionalItems");
        } else {
            schema_.items = schema_at("items");
        }
        schema_.min_items = count_at("minItems", 0);
        schema_.max_items = count_at("maxItems", UNBOUNDED);
        if (const JsonValue * unique = get("uniqueItems")) {
            if (!unique->is_boolean()) {
                throw wrong("/uniqueItems", "must be a boolean", *unique);
            }
            schema_.unique = unique->kind == JsonKind::YES;
        }
        if (since(Draft::DRAFT_6)) {
            schema_.contains = schema_at("contains");
        }
        if (since(Draft::DRAFT_2019_09)) {
            schema_.min_contains      = count_at("minContains", 1);
            schema_.max_contains      = count_at("maxContains", UNBOUNDED);
            schema_.unevaluated_items = schema_at("unevaluatedItems");
        }
    }
};

Schema & Schemas::at(const JsonValue & json) {
    Schema *& schema = at_[&json];
    if (schema == nullptr) {
        schema       = &all_.emplace_back();
        schema->json = &json;
    }
    return *schema;
}

const Schema & Schemas::read(const Schema & schema) {
    if (!schema.is_read) {
        Schema & unread = *at_.at(schema.json);
        KeywordReader(*this, unread).read();
        unread.is_read = true;
    }
    return schema;
}

Schema & Schemas::synthetic(const JsonValue & origin) {
    Schema & schema   = all_.emplace_back();
    schema.json       = &origin;
    schema.is_read    = true;
    schema.constrains = true;
    schema.draft      = document_.draft_of(origin);
    schema.n_keywords = 2;
    return schema;
}

const Schema & Schemas::constant(const JsonValue & value) {
    Schema *& schema = constants_[&value];
    if (schema == nullptr) {
        schema             = &synthetic(value);
        schema->has_values = true;
        schema->values     = {&value};
    }
    return *schema;
}

}  // namespace pyg
