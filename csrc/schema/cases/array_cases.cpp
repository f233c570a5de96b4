#include "schema/cases/array_cases.hpp"

#include <algorithm>

namespace pyg {

namespace {

// An array with an item at a position, which has a value.
ArrayCase with_item(size_t position, Goal goal) {
    ArrayCase result;
    result.first.resize(position + 1, ANY_VALUE);
    result.first[position] = goal;
    result.least           = static_cast<uint32_t>(position + 1);
    return result;
}

}  // namespace

// Bring a case into its normal form. False if no array can match; `joined_with`: what it was joined with, to look only
// at goals that changed.
bool ArrayCases::settle(ArrayCase & value, const ArrayCase * joined_with) {
    for (size_t i = 0; i < value.first.size(); i++) {
        if (value.first[i] == NO_VALUE) {
            value.most = std::min(value.most, static_cast<uint32_t>(i));
        }
    }
    if (value.rest == NO_VALUE) {
        value.most = std::min(value.most, static_cast<uint32_t>(value.first.size()));
    }
    if (value.most <= value.first.size()) {
        value.first.resize(value.most);
        value.rest = NO_VALUE;
    }
    while (value.rest != NO_VALUE && !value.first.empty() && value.first.back() == value.rest) {
        value.first.pop_back();
    }
    for (const ItemCount & count : value.counts) {
        if (count.least > count.most) {
            return false;
        }
        if (count.least > 0) {
            value.least = std::max(value.least, count.from + count.least);
        }
    }
    if (value.least > value.most) {
        return false;
    }
    const size_t n_required = std::min<size_t>(value.least, value.first.size());
    for (size_t i = 0; i < n_required && joined_with != nullptr; i++) {
        if (value.first[i] != joined_with->at(i) && emptiness_.is_surely_empty(value.first[i])) {
            return false;
        }
    }
    return true;
}

std::optional<ArrayCase> ArrayCases::both(const ArrayCase & a, const ArrayCase & b) {
    if (std::max(a.least, b.least) > std::min(a.most, b.most) || (a.unique && b.repeats) || (b.unique && a.repeats)) {
        return std::nullopt;
    }
    ArrayCase result = a;
    result.least     = std::max(a.least, b.least);
    result.most      = std::min(a.most, b.most);
    result.first.resize(std::max(a.first.size(), b.first.size()));
    for (size_t i = 0; i < result.first.size(); i++) {
        result.first[i] = terms_.both(a.at(i), b.at(i));
    }
    result.rest = terms_.both(a.rest, b.rest);
    for (const ItemCount & count : b.counts) {
        add_count(result, count);
    }
    result.unique        = a.unique || b.unique;
    result.repeats       = a.repeats || b.repeats;
    result.origin        = a.origin == nullptr ? b.origin : a.origin;
    result.n_evaluated   = std::max(a.n_evaluated, b.n_evaluated);
    result.evaluates_all = a.evaluates_all || b.evaluates_all;
    std::vector<Literal> values;
    std::set_union(a.evaluated_values.begin(), a.evaluated_values.end(), b.evaluated_values.begin(),
                   b.evaluated_values.end(), std::back_inserter(values));
    result.evaluated_values = std::move(values);
    if (!settle(result, &a)) {
        return std::nullopt;
    }
    return result;
}

void ArrayCases::add_count(ArrayCase & value, const ItemCount & count) {
    if (count.most == 0) {  // no item has it: a matter of the items
        const Goal others = terms_.goal(opposite(count.value));
        value.first.resize(std::max<size_t>(value.first.size(), count.from), value.rest);
        for (size_t i = count.from; i < value.first.size(); i++) {
            value.first[i] = terms_.both(value.first[i], others);
        }
        value.rest = terms_.both(value.rest, others);
        if (count.least > 0) {
            value.most  = 0;
            value.least = 1;
        }
        return;
    }
    if (count.value == ALWAYS) {  // a matter of the number of items
        if (count.least > 0) {
            value.least = std::max(value.least, count.from + count.least);
        }
        value.most = count.most == UNBOUNDED ? value.most : std::min(value.most, count.from + count.most);
        return;
    }
    if (count.value == NEVER) {
        value.least = count.least > 0 ? UNBOUNDED : value.least;
        return;
    }
    for (ItemCount & each : value.counts) {
        if (each.value == count.value && each.from == count.from) {
            each.least = std::max(each.least, count.least);
            each.most  = std::min(each.most, count.most);
            return;
        }
    }
    value.counts.push_back(count);
}

// --- what a schema says ---------------------------------------------------------------------------------------------

ArrayCases::Cases ArrayCases::own(const Term & term, bool tracked) {
    const Schema & schema = *term.schema;
    ArrayCase      result;
    for (const Schema * each : schema.prefix) {
        result.first.push_back(terms_.goal(terms_.below(term, *each)));
    }
    result.rest   = schema.items == nullptr ? ANY_VALUE : terms_.goal(terms_.below(term, *schema.items));
    result.least  = schema.min_items;
    result.most   = schema.max_items;
    result.unique = schema.unique;
    result.origin = &schema;
    if (schema.contains != nullptr) {
        const Literal value = terms_.below(term, *schema.contains);
        if (schema.min_contains > 0 || schema.max_contains != UNBOUNDED) {
            add_count(result, {value, 0, schema.min_contains, schema.max_contains});
        }
        if (tracked && schema.draft == Draft::DRAFT_2020_12) {
            result.evaluated_values.push_back(value);
        }
    }
    if (tracked) {
        result.n_evaluated   = static_cast<uint32_t>(schema.prefix.size());
        result.evaluates_all = schema.items != nullptr;
    }
    Cases cases;
    if (settle(result, nullptr)) {
        cases.push_back(std::move(result));
    }
    return cases;
}

void ArrayCases::apply_unevaluated(const Term & term, Cases & cases) {
    if (term.schema->unevaluated_items == nullptr) {
        return;
    }
    Cases result;
    for (ArrayCase & each : cases) {
        if (!each.evaluates_all) {
            ArrayCase rule;
            rule.first.resize(each.n_evaluated, ANY_VALUE);
            rule.rest                       = terms_.goal(unevaluated_or(term, each.evaluated_values));
            std::optional<ArrayCase> joined = both(each, rule);
            if (!joined) {
                continue;
            }
            each = std::move(*joined);
        }
        each.evaluates_all = true;
        result.push_back(std::move(each));
    }
    cases = std::move(result);
}

// A literal for values that `unevaluatedItems` allows, or `contains` matched.
Literal ArrayCases::unevaluated_or(const Term & term, const std::vector<Literal> & evaluated) {
    const Literal literal = terms_.below(term, *term.schema->unevaluated_items);
    if (literal == ALWAYS || evaluated.empty()) {
        return literal;
    }
    std::vector<Literal> all = evaluated;
    all.push_back(literal);
    const auto found = alternatives_.find(all);
    if (found != alternatives_.end()) {
        return found->second;
    }
    Schema & either   = terms_.schemas().synthetic(*term.schema->json);
    either.has_any_of = true;
    for (const Literal each : all) {
        if (is_negated(each) && each != NEVER) {
            throw fail(PYG_ERR_GRAMMAR, "%s/unevaluatedItems: a grammar cannot express this together with 'not'",
                       term.schema->json->pointer().c_str());
        }
        if (each == ALWAYS) {
            return ALWAYS;
        }
        if (each != NEVER) {
            either.any_of.push_back(terms_.term(each).schema);
        }
    }
    const Literal result = terms_.literal(either, term.scope);
    alternatives_.emplace(all, result);
    return result;
}

void ArrayCases::forget_evaluated(ArrayCase & value) {
    value.n_evaluated   = 0;
    value.evaluates_all = false;
    value.evaluated_values.clear();
}

ArrayCase ArrayCases::of_value(const JsonValue & value) {
    ArrayCase result;
    for (const JsonValue & item : value.items) {
        result.first.push_back(terms_.goal(constant(item)));
    }
    result.rest  = NO_VALUE;
    result.least = result.most = static_cast<uint32_t>(value.items.size());
    return result;
}

// --- what violates a schema -----------------------------------------------------------------------------------------

void ArrayCases::add_violations(const Term & term, Cases & cases) {
    const Schema & schema = *term.schema;
    if (schema.min_items > 0) {
        cases.emplace_back();
        cases.back().most = schema.min_items - 1;
        settle(cases.back(), nullptr);
    }
    if (schema.max_items != UNBOUNDED) {
        cases.emplace_back();
        cases.back().least = schema.max_items + 1;
    }
    const auto add = [&](ArrayCase && value) {
        if (settle(value, nullptr)) {
            value.origin = &schema;
            cases.push_back(std::move(value));
        }
    };
    for (size_t i = 0; i < schema.prefix.size(); i++) {
        add(with_item(i, terms_.goal(opposite(terms_.below(term, *schema.prefix[i])))));
    }
    const auto add_count_of = [&](const ItemCount & count) {
        ArrayCase value;
        add_count(value, count);
        add(std::move(value));
    };
    if (schema.items != nullptr) {
        add_count_of(
            {opposite(terms_.below(term, *schema.items)), static_cast<uint32_t>(schema.prefix.size()), 1, UNBOUNDED});
    }
    if (schema.contains != nullptr) {
        const Literal value = terms_.below(term, *schema.contains);
        if (schema.min_contains > 0) {
            add_count_of({value, 0, 0, schema.min_contains - 1});
        }
        if (schema.max_contains != UNBOUNDED) {
            add_count_of({value, 0, schema.max_contains + 1, UNBOUNDED});
        }
    }
    if (schema.unique) {
        ArrayCase value;
        value.repeats = true;
        value.least   = 2;
        add(std::move(value));
    }
    if (schema.unevaluated_items != nullptr && terms_.below(term, *schema.unevaluated_items) != ALWAYS) {
        throw fail(PYG_ERR_GRAMMAR, "%s/unevaluatedItems: a grammar cannot express the negation of this",
                   schema.json->pointer().c_str());
    }
}

void ArrayCases::add_other_values(const JsonValue & value, Cases & all) {
    const auto n = static_cast<uint32_t>(value.items.size());
    if (n > 0) {
        all.emplace_back();
        all.back().most = n - 1;
        settle(all.back(), nullptr);
    }
    all.emplace_back();
    all.back().least = n + 1;
    for (size_t i = 0; i < value.items.size(); i++) {
        all.push_back(with_item(i, terms_.goal(opposite(constant(value.items[i])))));
    }
}

}  // namespace pyg
