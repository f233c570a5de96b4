#include "schema/cases/terms.hpp"

#include <algorithm>

namespace pyg {

namespace {

constexpr size_t MAX_STEPS = 3'000'000;  // copied members: some 20 ms
constexpr int    MAX_HOPS  = 500;        // references that refer to references
constexpr int    MAX_DEPTH = 400;        // schemas inside each other that apply to one value
constexpr size_t MAX_TERMS = 200'000;
constexpr size_t MAX_GOALS = 100'000;

}  // namespace

void Budget::spend(size_t n, const Schema & schema, const char * keyword) {
    spent_ += n;
    if (spent_ > MAX_STEPS) {
        throw fail(PYG_ERR_GRAMMAR, "%s/%s: too many combinations", schema.json->pointer().c_str(), keyword);
    }
}

Terms::Terms(Schemas & schemas) : schemas_(schemas), terms_(1), open_(1), scopes_(1) {
    intern({});
    intern({NEVER});
}

// --- literals -------------------------------------------------------------------------------------------------------

Literal Terms::literal(const Schema & schema, uint32_t scope) {
    const auto found = known_.find({&schema, scope});
    if (found != known_.end()) {
        return found->second;
    }
    const Literal result = canonical(schema, scope);
    known_.emplace(std::make_pair(&schema, scope), result);
    return result;
}

Literal Terms::canonical(const Schema & asked, uint32_t scope) {
    const Schema * schema   = &asked;
    bool           negative = false;
    for (int hops = 0; hops < MAX_HOPS; hops++) {
        scope = enter(scope, *schema->json);
        schemas_.read(*schema);
        if (!schema->constrains || schema->is_never) {
            return (schema->is_never ? NEVER : ALWAYS) ^ static_cast<Literal>(negative);
        }
        if (schema->is_only_ref()) {
            last_ref_ = schema;
            schema    = schema->ref;
        } else if (schema->negated != nullptr && schema->n_keywords == 1) {
            negative = !negative;
            schema   = schema->negated;
        } else {
            break;
        }
        if (schema == &asked) {
            throw SelfReference(refers_to_itself(last_ref_ == nullptr ? asked : *last_ref_));
        }
    }
    if (schema->is_only_ref()) {
        throw SelfReference(refers_to_itself(*schema));
    }
    if (schema != &asked) {
        return literal(*schema, scope) ^ static_cast<Literal>(negative);
    }
    if (terms_.size() >= MAX_TERMS) {
        throw fail(PYG_ERR_GRAMMAR, "%s: too many combinations", schema->json->pointer().c_str());
    }
    terms_.push_back({schema, scope});
    open_.push_back(0);
    return static_cast<Literal>(terms_.size() - 1) * 2;
}

Literal Terms::alongside(const Term & term, const Schema & schema) {
    last_ref_            = nullptr;
    const Literal result = literal(schema, term.scope);
    if (open_[result / 2] > 0) {
        const Schema & from = schemas_.read(schema).is_only_ref() ? schema : *term.schema;
        throw SelfReference(refers_to_itself(from));
    }
    return result;
}

Failure Terms::refers_to_itself(const Schema & schema) const {
    for (const char * keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
        const JsonValue * ref = schema.json->find(keyword);
        if (ref != nullptr) {
            return fail(PYG_ERR_GRAMMAR, "%s/%s: %.200s refers to itself", schema.json->pointer().c_str(), keyword,
                        ref->text.c_str());
        }
    }
    return fail(PYG_ERR_GRAMMAR, "%s: the schema refers to itself", schema.json->pointer().c_str());
}

// --- dynamic scopes -------------------------------------------------------------------------------------------------

// The scope inside of the resource of a schema: its dynamic anchors count where none of an outer resource does.
uint32_t Terms::enter(uint32_t scope, const JsonValue & json) {
    const Document & document = schemas_.document();
    if (!document.has_dynamic_anchors()) {
        return 0;
    }
    const SchemaResource & resource = document.resources()[document.resource_of(json)];
    Scope                  inside   = scopes_[scope];
    const auto             add      = [&](const std::string & name, const JsonValue * target) {
        const auto place =
            std::lower_bound(inside.begin(), inside.end(), name,
                             [](const auto & each, const std::string & wanted) { return each.first < wanted; });
        if (place == inside.end() || place->first != name) {
            inside.emplace(place, name, target);
        }
    };
    for (const auto & [name, target] : resource.dynamic_anchors) {
        add(name, target);
    }
    if (resource.is_recursive) {
        add("", resource.root);
    }
    const auto found = std::find(scopes_.begin(), scopes_.end(), inside);
    if (found != scopes_.end()) {
        return static_cast<uint32_t>(found - scopes_.begin());
    }
    scopes_.push_back(std::move(inside));
    return static_cast<uint32_t>(scopes_.size() - 1);
}

const Schema & Terms::dynamic_target(const Term & term) {
    const Schema & schema = *term.schema;
    if (schema.dynamic_anchor != nullptr || schema.is_recursive_ref) {
        const std::string name = schema.is_recursive_ref ? "" : *schema.dynamic_anchor;
        for (const auto & [anchor, target] : scopes_[term.scope]) {
            if (anchor == name) {
                return schemas_.at(*target);
            }
        }
    }
    return *schema.dynamic_ref;
}

// --- goals ----------------------------------------------------------------------------------------------------------

Goal Terms::intern(const std::vector<Literal> & literals) {
    const auto [entry, is_new] = goal_of_.emplace(literals, static_cast<Goal>(goals_.size()));
    if (is_new) {
        if (goals_.size() >= MAX_GOALS) {
            throw fail(PYG_ERR_GRAMMAR, "%s: too many combinations", place(literals[0]).c_str());
        }
        goals_.push_back(&entry->first);
    }
    return entry->second;
}

Goal Terms::goal(Literal literal) {
    return literal == ALWAYS ? ANY_VALUE : literal == NEVER ? NO_VALUE : intern({literal});
}

Goal Terms::both(Goal a, Goal b) {
    if (a == b || b == ANY_VALUE || a == NO_VALUE) {
        return a;
    }
    if (a == ANY_VALUE || b == NO_VALUE) {
        return b;
    }
    const uint64_t key   = static_cast<uint64_t>(std::min(a, b)) << 32 | std::max(a, b);
    const auto     found = joined_.find(key);
    if (found != joined_.end()) {
        return found->second;
    }
    std::vector<Literal> all;
    std::set_union(literals(a).begin(), literals(a).end(), literals(b).begin(), literals(b).end(),
                   std::back_inserter(all));
    bool is_contradiction = false;
    for (size_t i = 1; i < all.size(); i++) {
        is_contradiction =
            is_contradiction || all[i] == opposite(all[i - 1]);  // neighbours: they differ in the last bit
    }
    const Goal result = is_contradiction ? NO_VALUE : intern(all);
    joined_.emplace(key, result);
    return result;
}

bool Terms::implies(Goal goal, Literal literal) const {
    const std::vector<Literal> & all = literals(goal);
    return literal == ALWAYS || goal == NO_VALUE || std::binary_search(all.begin(), all.end(), literal);
}

OpenTerm::OpenTerm(Terms & terms, Literal literal) : terms_(terms), term_(literal / 2) {
    if (terms.depth_ >= MAX_DEPTH) {
        throw fail(PYG_ERR_GRAMMAR, "%s: the schema is nested too deeply", terms.place(literal).c_str());
    }
    terms.depth_++;
    terms.open_[term_]++;
}

OpenTerm::~OpenTerm() {
    terms_.depth_--;
    terms_.open_[term_]--;
}

}  // namespace pyg
