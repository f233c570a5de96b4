// Cases of arrays: conjunctions of what schemas say about items.
#pragma once

#include "schema/cases/expansion.hpp"

#include <vector>

namespace pyg {

// The number of items, from position `from` on, that have a value.
struct ItemCount {
    Literal  value;
    uint32_t from  = 0;
    uint32_t least = 0, most = UNBOUNDED;
    bool     operator==(const ItemCount & o) const {
        return value == o.value && from == o.from && least == o.least && most == o.most;
    }
};

struct ArrayCase {
    std::vector<Goal>      first;  // by position; the array may be shorter
    Goal                   rest  = ANY_VALUE;
    uint32_t               least = 0, most = UNBOUNDED;
    std::vector<ItemCount> counts;
    bool                   unique = false, repeats = false;  // all items differ; two are equal
    const Schema *         origin = nullptr;                 // of `counts`, `unique` and `repeats`, for messages

    // What is evaluated, if it is tracked: positions, or all items, and those that have a value.
    uint32_t             n_evaluated   = 0;
    bool                 evaluates_all = false;
    std::vector<Literal> evaluated_values;

    bool operator==(const ArrayCase & o) const {
        return least == o.least && most == o.most && rest == o.rest && unique == o.unique && repeats == o.repeats &&
               n_evaluated == o.n_evaluated && evaluates_all == o.evaluates_all && first == o.first &&
               counts == o.counts && evaluated_values == o.evaluated_values;
    }

    Goal at(size_t position) const { return position < first.size() ? first[position] : rest; }
};

class ArrayCases : public Expansion<ArrayCase> {
  public:
    ArrayCases(Terms & terms, Emptiness & emptiness) : Expansion(terms, TYPE_ARRAY), emptiness_(emptiness) {}

    std::optional<ArrayCase> both(const ArrayCase & a, const ArrayCase & b) override;

  protected:
    Cases     own(const Term & term, bool tracked) override;
    void      add_violations(const Term & term, Cases & cases) override;
    bool      is_value(const JsonValue & value) const override { return value.is_array(); }
    ArrayCase of_value(const JsonValue & value) override;
    void      add_other_values(const JsonValue & value, Cases & all) override;
    void      apply_unevaluated(const Term & term, Cases & cases) override;
    void      forget_evaluated(ArrayCase & value) override;
    size_t    size(const ArrayCase & value) const override { return value.first.size() + 4 * value.counts.size(); }
    bool      has_unevaluated(const Schema & schema) const override { return schema.unevaluated_items != nullptr; }

  private:
    Emptiness & emptiness_;

    void    add_count(ArrayCase & value, const ItemCount & count);
    bool    settle(ArrayCase & value, const ArrayCase * joined_with);
    Literal unevaluated_or(const Term & term, const std::vector<Literal> & evaluated);
    Literal constant(const JsonValue & value) { return terms_.literal(terms_.schemas().constant(value), 0); }

    std::map<std::vector<Literal>, Literal> alternatives_;  // what unevaluated_or() made
};

}  // namespace pyg
