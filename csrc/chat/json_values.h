// Included before upstream's common/json.cpp (see vendor/CMakeLists.txt), the only file that uses nlohmann::json.
//
// To free an array or object, that library moves its children to a stack on the heap, to avoid deep recursion. If
// memory for the stack runs out, the destructor throws and the process ends. Here the way back to the parents is stored
// in the parents themselves (pointer reversal), and freeing allocates nothing.
#pragma once

#include "ggml.h"

#define JSON_ASSERT GGML_ASSERT
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

template <>
void nlohmann::ordered_json::assert_invariant(bool) const noexcept;
template <>
void nlohmann::ordered_json::json_value::destroy(value_t type);

namespace pyg {

using Json = nlohmann::ordered_json;

// After a failed allocation, an array or object may have a null pointer to its children.
template <class Container>
bool is_filled(const Container * container) {
    return container && !container->empty();
}

inline bool has_children(const Json & value) {
    return is_filled(value.get_ptr<const Json::array_t *>()) || is_filled(value.get_ptr<const Json::object_t *>());
}

inline Json & last_child(Json & parent) {
    return parent.is_array() ? parent.get_ref<Json::array_t &>().back()
                             : parent.get_ref<Json::object_t &>().back().second;
}

inline void drop_last_child(Json & parent) {
    if (parent.is_array()) {
        parent.get_ref<Json::array_t &>().pop_back();
    } else {
        parent.get_ref<Json::object_t &>().pop_back();
    }
}

// Free an array or object and its children, last to first. While a child is freed, its place in its parent holds the
// parent's own parent: null above the outermost.
inline void free_tree(Json current) noexcept {
    Json parent;
    while (has_children(current) || !parent.is_null()) {
        if (!has_children(current)) {
            current = std::exchange(parent, nullptr);
            parent  = std::move(last_child(current));
            drop_last_child(current);
        } else if (!has_children(last_child(current))) {
            drop_last_child(current);
        } else {
            Json child          = std::move(last_child(current));
            last_child(current) = std::move(parent);
            parent              = std::exchange(current, std::move(child));
        }
    }
}

template <class T>
void free_one(T * value) noexcept {
    std::allocator<T> memory;
    std::destroy_at(value);
    memory.deallocate(value, 1);
}

}  // namespace pyg

// A check that pointers are not null, where nothing could catch its failure. After a failed allocation some are null,
// and are freed like that.
template <>
inline void nlohmann::ordered_json::assert_invariant(bool) const noexcept {}

template <>
inline void nlohmann::ordered_json::json_value::destroy(value_t type) {
    const bool is_tree =
        (type == value_t::array && pyg::is_filled(array)) || (type == value_t::object && pyg::is_filled(object));
    if (is_tree) {
        basic_json whole;
        whole.m_data.m_type  = type;
        whole.m_data.m_value = *this;
        pyg::free_tree(std::move(whole));
    } else if (type == value_t::array && array != nullptr) {
        pyg::free_one(array);
    } else if (type == value_t::object && object != nullptr) {
        pyg::free_one(object);
    } else if (type == value_t::string && string != nullptr) {
        pyg::free_one(string);
    } else if (type == value_t::binary && binary != nullptr) {
        pyg::free_one(binary);
    }
}
