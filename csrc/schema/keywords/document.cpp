#include "schema/keywords/document.hpp"

#include "boundary/guard.hpp"
#include "schema/keywords/uri.hpp"

#include <algorithm>

namespace pyg {

namespace {

const std::string * text_of(const JsonValue & schema, const char * keyword) {
    const JsonValue * value = schema.find(keyword);
    return value != nullptr && value->is_string() ? &value->text : nullptr;
}

void require_text(const JsonValue & schema, const char * keyword) {
    const JsonValue * value = schema.find(keyword);
    if (value != nullptr && !value->is_string()) {
        throw fail(PYG_ERR_GRAMMAR, "%s/%s: must be a string, not %s", schema.pointer().c_str(), keyword,
                   value->excerpt().c_str());
    }
}

// Only the root of a document, or of a resource inside it, declares a dialect.
Draft draft_named(const JsonValue & schema, Draft otherwise) {
    const std::string * uri = text_of(schema, "$schema");
    require_text(schema, "$schema");
    require_text(schema, "$id");
    const bool is_root = schema.parent == nullptr || text_of(schema, "$id") || text_of(schema, "id");
    if (uri == nullptr || !is_root) {
        return otherwise;
    }
    static const std::pair<const char *, Draft> names[] = {
        {"json-schema.org/draft-04/schema", Draft::DRAFT_4},
        {"json-schema.org/draft-06/schema", Draft::DRAFT_6},
        {"json-schema.org/draft-07/schema", Draft::DRAFT_7},
        {"json-schema.org/draft/2019-09/schema", Draft::DRAFT_2019_09},
        {"json-schema.org/draft/2020-12/schema", Draft::DRAFT_2020_12},
        {"json-schema.org/schema", Draft::DRAFT_2020_12},  // "the latest"
    };
    const std::string plain = without_fragment(*uri);
    for (const auto & [name, draft] : names) {
        if (plain == std::string("http://") + name || plain == std::string("https://") + name) {
            return draft;
        }
    }
    throw fail(PYG_ERR_GRAMMAR,
               "%s/$schema: unknown dialect \"%.100s\"; known are the drafts 4, 6, 7, 2019-09 and 2020-12",
               schema.pointer().c_str(), uri->c_str());
}

bool has_ref_alone(const JsonValue & schema, Draft draft) {
    return draft <= Draft::DRAFT_7 && text_of(schema, "$ref") != nullptr;
}

// The value at a JSON pointer below `from`, or nullptr.
const JsonValue * at_pointer(const JsonValue & from, const std::string & pointer) {
    const JsonValue * value = &from;
    for (size_t begin = 1; value != nullptr && begin <= pointer.size();) {
        const size_t end = std::min(pointer.find('/', begin), pointer.size());
        std::string  token;
        for (size_t i = begin; i < end; i++) {
            const bool is_escaped =
                pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1');
            token += is_escaped ? (pointer[i + 1] == '0' ? '~' : '/') : pointer[i];
            i += is_escaped;
        }
        if (value->is_array()) {
            const bool is_index = !token.empty() && token.size() < 9 &&
                                  std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
            const size_t i      = is_index ? std::stoul(token) : value->items.size();
            value               = i < value->items.size() ? &value->items[i] : nullptr;
        } else {
            value = value->find(token);
        }
        begin = end + 1;
    }
    return value;
}

}  // namespace

Applicator applicator(const std::string & keyword) {
    static const std::unordered_map<std::string, Applicator> all = {
        {"additionalItems", Applicator::SCHEMA},
        {"additionalProperties", Applicator::SCHEMA},
        {"contains", Applicator::SCHEMA},
        {"contentSchema", Applicator::SCHEMA},
        {"else", Applicator::SCHEMA},
        {"if", Applicator::SCHEMA},
        {"not", Applicator::SCHEMA},
        {"propertyNames", Applicator::SCHEMA},
        {"then", Applicator::SCHEMA},
        {"unevaluatedItems", Applicator::SCHEMA},
        {"unevaluatedProperties", Applicator::SCHEMA},
        {"items", Applicator::SCHEMA_OR_SCHEMAS},
        {"allOf", Applicator::SCHEMAS},
        {"anyOf", Applicator::SCHEMAS},
        {"oneOf", Applicator::SCHEMAS},
        {"prefixItems", Applicator::SCHEMAS},
        {"$defs", Applicator::NAMED_SCHEMAS},
        {"definitions", Applicator::NAMED_SCHEMAS},
        {"dependencies", Applicator::NAMED_SCHEMAS},
        {"dependentSchemas", Applicator::NAMED_SCHEMAS},
        {"patternProperties", Applicator::NAMED_SCHEMAS},
        {"properties", Applicator::NAMED_SCHEMAS},
    };
    const auto found = all.find(keyword);
    return found == all.end() ? Applicator::NONE : found->second;
}

Document::Document(const std::string & json) {
    parse_json(json, root_);
    resources_.push_back({"", &root_, draft_named(root_, Draft::DRAFT_2020_12), {}, {}, false});
    resource_at_.emplace(&root_, 0);
    resource_named_.emplace("", 0);
    visit(root_, 0);
}

void Document::visit(const JsonValue & schema, uint32_t resource) {
    if (!schema.is_object()) {
        return;
    }
    resource                = enter(schema, resource);
    SchemaResource & inside = resources_[resource];
    if (inside.draft >= Draft::DRAFT_2019_09) {
        if (const std::string * anchor = text_of(schema, "$anchor")) {
            inside.anchors.emplace(*anchor, &schema);
        }
        if (const std::string * anchor = text_of(schema, "$dynamicAnchor")) {
            inside.anchors.emplace(*anchor, &schema);
            inside.dynamic_anchors.emplace(*anchor, &schema);
            has_dynamic_anchors_ = true;
        }
        const JsonValue * recursive = schema.find("$recursiveAnchor");
        if (recursive != nullptr && recursive->kind == JsonKind::YES && inside.root == &schema) {
            inside.is_recursive  = true;
            has_dynamic_anchors_ = true;
        }
    }
    visit_children(schema, resource);
}

// Return the resource of a schema, a new one if it has an `$id`.
uint32_t Document::enter(const JsonValue & schema, uint32_t outer) {
    const Draft         draft = &schema == &root_ ? resources_[0].draft : draft_named(schema, resources_[outer].draft);
    const std::string * id    = text_of(schema, draft == Draft::DRAFT_4 ? "id" : "$id");
    if (id == nullptr || has_ref_alone(schema, draft)) {
        return outer;
    }
    const std::string uri      = resolve_uri(resources_[outer].uri, *id);
    const std::string fragment = fragment_of(uri), own = without_fragment(uri);
    if (own == resources_[outer].uri && &schema != &root_) {  // "#name": an anchor of drafts up to 7
        if (!fragment.empty() && draft <= Draft::DRAFT_7) {
            resources_[outer].anchors.emplace(fragment, &schema);
        }
        return outer;
    }
    if (&schema == &root_) {
        resources_[0].uri = own;
        resource_named_.emplace(own, 0);
        if (!fragment.empty()) {
            resources_[0].anchors.emplace(fragment, &schema);
        }
        return 0;
    }
    const auto index = static_cast<uint32_t>(resources_.size());
    resources_.push_back({own, &schema, draft, {}, {}, false});
    resource_at_.emplace(&schema, index);
    resource_named_.emplace(own, index);
    if (!fragment.empty()) {
        resources_[index].anchors.emplace(fragment, &schema);
    }
    return index;
}

void Document::visit_children(const JsonValue & schema, uint32_t resource) {
    for (size_t i = 0; i < schema.names.size(); i++) {
        const JsonValue & value = schema.items[i];
        switch (applicator(schema.names[i])) {
        case Applicator::NONE:
            break;
        case Applicator::SCHEMA:
            visit(value, resource);
            break;
        case Applicator::SCHEMA_OR_SCHEMAS:
            if (!value.is_array()) {
                visit(value, resource);
                break;
            }
            [[fallthrough]];
        case Applicator::SCHEMAS:
            if (value.is_array()) {
                for (const JsonValue & each : value.items) {
                    visit(each, resource);
                }
            }
            break;
        case Applicator::NAMED_SCHEMAS:
            if (value.is_object()) {
                for (const JsonValue & each : value.items) {
                    visit(each, resource);
                }
            }
            break;
        }
    }
}

uint32_t Document::resource_of(const JsonValue & value) const {
    if (resources_.size() == 1) {
        return 0;
    }
    for (const JsonValue * each = &value; each != nullptr; each = each->parent) {
        const auto found = resource_at_.find(each);
        if (found != resource_at_.end()) {
            return found->second;
        }
    }
    return 0;
}

const JsonValue & Document::resolve(const JsonValue & schema, const char * keyword,
                                    const std::string & reference) const {
    const std::string uri   = resolve_uri(resources_[resource_of(schema)].uri, reference);
    const auto        found = resource_named_.find(without_fragment(uri));
    if (found == resource_named_.end()) {
        throw fail(PYG_ERR_GRAMMAR, "%s/%s: '%.200s' does not point into this schema (#/...)", schema.pointer().c_str(),
                   keyword, reference.c_str());
    }
    const SchemaResource & resource = resources_[found->second];
    const std::string      fragment = fragment_of(uri);
    const JsonValue *      target   = nullptr;
    if (fragment.empty()) {
        target = resource.root;
    } else if (fragment[0] == '/') {
        target = at_pointer(*resource.root, fragment);
    } else {
        const auto anchor = resource.anchors.find(fragment);
        target            = anchor == resource.anchors.end() ? nullptr : anchor->second;
    }
    if (target == nullptr) {
        throw fail(PYG_ERR_GRAMMAR, "%s/%s: there is nothing at %.200s", schema.pointer().c_str(), keyword,
                   reference.c_str());
    }
    return *target;
}

}  // namespace pyg
