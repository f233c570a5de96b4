// A schema document: its resources ($id), anchors and drafts, and the resolution of references in it.
#pragma once

#include "schema/keywords/json_value.hpp"

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace pyg {

enum class Draft : uint8_t { DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019_09, DRAFT_2020_12 };

// A schema with a URI of its own: the root, or one with `$id` inside of it.
struct SchemaResource {
    std::string                              uri;  // absolute where the document says so; without a fragment
    const JsonValue *                        root  = nullptr;
    Draft                                    draft = Draft::DRAFT_2020_12;
    std::map<std::string, const JsonValue *> anchors;  // dynamic ones too
    std::map<std::string, const JsonValue *> dynamic_anchors;
    bool                                     is_recursive = false;  // $recursiveAnchor
};

class Document {
  public:
    // PYG_ERR_GRAMMAR: not JSON, or an unknown $schema.
    explicit Document(const std::string & json);
    Document(const Document &)             = delete;
    Document & operator=(const Document &) = delete;

    const JsonValue & root() const { return root_; }

    const std::vector<SchemaResource> & resources() const { return resources_; }
    uint32_t                            resource_of(const JsonValue & value) const;  // index: the innermost one
    Draft draft_of(const JsonValue & value) const { return resources_[resource_of(value)].draft; }

    // The value that a reference points to, from `keyword` of `schema`. PYG_ERR_GRAMMAR if it is in another document,
    // or there is nothing.
    const JsonValue & resolve(const JsonValue & schema, const char * keyword, const std::string & reference) const;

    bool has_dynamic_anchors() const { return has_dynamic_anchors_; }

  private:
    JsonValue                                       root_;
    std::vector<SchemaResource>                     resources_;
    std::unordered_map<const JsonValue *, uint32_t> resource_at_;     // of roots of resources
    std::unordered_map<std::string, uint32_t>       resource_named_;  // URI -> index
    bool                                            has_dynamic_anchors_ = false;

    void     visit(const JsonValue & schema, uint32_t resource);
    uint32_t enter(const JsonValue & schema, uint32_t outer);
    void     visit_children(const JsonValue & schema, uint32_t resource);
};

// How the keywords that contain schemas do so.
enum class Applicator : uint8_t { NONE, SCHEMA, SCHEMAS, NAMED_SCHEMAS, SCHEMA_OR_SCHEMAS };
Applicator applicator(const std::string & keyword);

}  // namespace pyg
