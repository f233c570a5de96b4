// Disjunctions of cases, as lists, and their conjunctions.
#pragma once

#include "schema/cases/terms.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace pyg {

constexpr size_t MAX_CASES = 4000;

template <class Case>
class CaseLists {
  public:
    using Cases = std::vector<Case>;

    explicit CaseLists(Terms & terms) : terms_(terms) {}
    virtual ~CaseLists() = default;

    // The conjunction of two cases, or nothing if they contradict each other.
    virtual std::optional<Case> both(const Case & a, const Case & b) = 0;

  protected:
    Terms & terms_;

    virtual size_t size(const Case & value) const = 0;  // for the budget

    // All pairs. A case that implies one of `others` stays as it is.
    Cases product(const Cases & some, const Cases & others, const Schema & schema, const char * keyword, bool tracked) {
        if (others.size() == 1 && others[0] == Case()) {
            return some;
        }
        if (some.size() == 1 && some[0] == Case()) {
            return others;
        }
        Cases result;
        for (const Case & each : some) {
            const size_t n_before = result.size();
            for (const Case & other : others) {
                std::optional<Case> joined = both(each, other);
                terms_.budget.spend(joined ? 2 + size(*joined) : 1, schema, keyword);
                if (joined && !tracked && *joined == each) {
                    result.resize(n_before);
                    result.push_back(each);
                    break;
                }
                if (joined) {
                    result.push_back(std::move(*joined));
                }
            }
            if (result.size() > MAX_CASES) {
                terms_.budget.spend(SIZE_MAX / 2, schema, keyword);
            }
        }
        simplify(result, tracked);
        return result;
    }

    static void append(Cases & cases, const Cases & more) { cases.insert(cases.end(), more.begin(), more.end()); }

    // Remove what is there twice; a case without constraints contains all others.
    static void simplify(Cases & cases, bool tracked) {
        constexpr size_t MOST_COMPARED = 100;
        if (!tracked && std::find(cases.begin(), cases.end(), Case()) != cases.end()) {
            cases.assign(1, Case());
        }
        if (cases.size() > MOST_COMPARED) {
            return;
        }
        Cases result;
        for (Case & each : cases) {
            if (std::find(result.begin(), result.end(), each) == result.end()) {
                result.push_back(std::move(each));
            }
        }
        cases = std::move(result);
    }

    // True if a case of one list does not contradict every case of the other.
    bool meets(const Cases & some, const Cases & others, const Schema & schema) {
        for (const Case & each : some) {
            for (const Case & other : others) {
                terms_.budget.spend(1, schema, "oneOf");
                if (both(each, other)) {
                    return true;
                }
            }
        }
        return false;
    }
};

}  // namespace pyg
