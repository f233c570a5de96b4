#include "chat/jinja_limits.h"

#include "chat/template_limits.hpp"

#include <cmath>
#include <map>
#include <stdexcept>

#undef is_val
#undef cast_val
#undef sort
#undef strip

namespace {

constexpr int    MAX_RANGE   = 100000;  // the limit of jinja2's sandbox
constexpr double MAX_NUMBER  = 1e18;    // upstream counts steps past the ends of ranges and slices
constexpr size_t SHORT_TEXT  = 1 << 16;
constexpr double MAX_MOVED   = 5e10;  // bytes; 3 s
constexpr size_t MANY_VALUES = 1024;

// Lists and objects that were modified, by address, which is not reused while they are referenced here.
using Values = std::map<const jinja::value_t *, std::weak_ptr<jinja::value_t>>;
thread_local Values t_changed;
thread_local size_t t_n_to_keep = MANY_VALUES;

void forget_freed_values() {
    for (auto it = t_changed.begin(); it != t_changed.end();) {
        it = it->second.expired() ? t_changed.erase(it) : std::next(it);
    }
    t_n_to_keep = std::max(MANY_VALUES, 2 * t_changed.size());
}

template <class T>
void require_type(const jinja::func_args & args, size_t first, size_t last) {
    for (size_t i = first; i <= last && i < args.count(); i++) {
        args.ensure_val<T>(args.get_pos(i));
    }
}

void require_small_numbers(const jinja::func_args & args, size_t first) {
    for (size_t i = first; i < args.count(); i++) {
        if (std::abs(static_cast<double>(args.get_pos(i)->as_int())) > MAX_NUMBER) {
            throw std::runtime_error("a range of numbers that are too large");
        }
    }
}

// Upstream expands ranges to lists, which could exhaust memory.
void require_short_range(const jinja::func_args & args) {
    require_small_numbers(args, 0);
    std::vector<double> numbers;
    for (size_t i = 0; i < args.count(); i++) {
        numbers.push_back(static_cast<double>(args.get_pos(i)->as_int()));
    }
    const double start = numbers.size() == 1 ? 0.0 : numbers[0];
    const double stop  = numbers[numbers.size() == 1 ? 0 : 1];
    const double step  = numbers.size() == 3 ? numbers[2] : 1.0;
    if (step != 0.0 && (stop - start) / step > MAX_RANGE) {
        throw std::runtime_error("a range of more than " + std::to_string(MAX_RANGE) + " numbers");
    }
}

// Upstream moves the rest of the text for each replacement of another length.
void require_few_parts(const std::string & text, const std::string & part, size_t new_size) {
    if (text.size() <= SHORT_TEXT || part.empty() || part.size() == new_size) {
        return;
    }
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
        n++;
    }
    if (static_cast<double>(n) * static_cast<double>(text.size()) > MAX_MOVED) {
        throw std::runtime_error("a text that is too long to replace " + std::to_string(n) + " parts of it");
    }
}

}  // namespace

pyg::JinjaValues::~JinjaValues() {
    const Values changed = std::move(t_changed);
    t_changed.clear();
    t_n_to_keep = MANY_VALUES;
    for (const auto & [address, weak] : changed) {
        const jinja::value value = weak.lock();
        if (value) {
            value->val_arr.clear();
            value->val_obj.clear();
            if (const auto object = std::dynamic_pointer_cast<jinja::value_object_t>(value)) {
                object->unordered.clear();
            }
        }
    }
}

void pyg_jinja_step() { pyg::TemplateLimits::step(); }

void pyg_jinja_compares() { pyg::TemplateLimits::compare(); }

std::string pyg_jinja_different(const std::string & characters) {
    std::string different = characters;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    return different;
}

void pyg_jinja_changes(const jinja::value & value) {
    t_changed[value.get()] = value;
    if (t_changed.size() > t_n_to_keep) {
        forget_freed_values();
    }
}

namespace jinja {

template <>
void func_args::ensure_vals<value_int, value_int>(bool, bool) const {
    ensure_count(2, 2);
    require_type<value_int>(*this, 0, 1);
    require_small_numbers(*this, 0);
    if (get_pos(1)->as_int() == 0) {
        throw std::runtime_error("a division by zero");
    }
}

template <>
void func_args::ensure_vals<value_int, value_int, value_int>(bool, bool, bool) const {
    ensure_count(1);
    require_type<value_int>(*this, 0, 2);
    require_short_range(*this);
}

template <>
void func_args::ensure_vals<value_string, value_string, value_string, value_int>(bool, bool, bool, bool) const {
    ensure_count(3);
    require_type<value_string>(*this, 0, 2);
    require_type<value_int>(*this, 3, 3);
    require_few_parts(get_pos(0)->as_string().str(), get_pos(1)->as_string().str(), get_pos(2)->as_string().length());
}

template <>
void func_args::ensure_vals<value_string, value_int, value_int, value_int>(bool, bool, bool, bool) const {
    ensure_count(2);
    require_type<value_string>(*this, 0, 0);
    require_type<value_int>(*this, 1, 3);
    require_small_numbers(*this, 1);
}

template <>
void func_args::ensure_vals<value_array, value_int, value_int, value_int>(bool, bool, bool, bool) const {
    ensure_count(2);
    require_type<value_array>(*this, 0, 0);
    require_type<value_int>(*this, 1, 3);
    require_small_numbers(*this, 1);
}

}  // namespace jinja
