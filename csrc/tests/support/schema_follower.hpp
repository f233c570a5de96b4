// Plain and slow reading of schema/shapes.hpp: is a JSON value allowed?
#pragma once

#include "regex/numbers/numbers.hpp"
#include "schema/keywords/json_value.hpp"
#include "schema/shapes.hpp"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

namespace pyg {

inline bool equal_values(const JsonValue & a, const JsonValue & b) {
    if (a.kind != b.kind || a.items.size() != b.items.size()) {
        return false;
    }
    if (a.is_number()) {
        return compare_numbers(a.text, b.text) == 0;
    }
    if (a.is_string()) {
        return a.text == b.text;
    }
    for (size_t i = 0; i < a.items.size(); i++) {
        const JsonValue * other = a.is_object() ? b.find(a.names[i]) : &b.items[i];
        if (other == nullptr || !equal_values(a.items[i], *other)) {
            return false;
        }
    }
    return true;
}

class SchemaFollower {
  public:
    explicit SchemaFollower(SchemaShapes & shapes) : shapes_(shapes) {}

    bool allows(const JsonValue & value) { return allows(shapes_.root, value); }

    bool allows(NodeId id, const JsonValue & value) {
        const Node & node = shapes_.nodes[id];
        switch (value.kind) {
        case JsonKind::NIL:
            return node.null;
        case JsonKind::YES:
            return node.yes;
        case JsonKind::NO:
            return node.no;
        case JsonKind::STRING:
            return shapes_.languages.contains(node.string, value.text);
        case JsonKind::NUMBER:
            return shapes_.languages.contains(node.number, value.text);
        case JsonKind::OBJECT:
            return std::any_of(node.objects.begin(), node.objects.end(),
                               [&](uint32_t each) { return allows(shapes_.objects[each], value); });
        case JsonKind::ARRAY:
            return std::any_of(node.arrays.begin(), node.arrays.end(),
                               [&](uint32_t each) { return allows(shapes_.arrays[each], value); });
        }
        return false;
    }

  private:
    SchemaShapes & shapes_;

    bool allows(const ObjectShape & shape, const JsonValue & value) {
        if (value.items.size() < shape.least || value.items.size() > shape.most) {
            return false;
        }
        for (const Member & member : shape.members) {
            const JsonValue * item = value.find(member.name);
            if (item == nullptr ? member.required : !allows(member.value, *item)) {
                return false;
            }
        }
        std::vector<std::vector<bool>> fits;  // of each free member: the classes that it may be of
        for (size_t i = 0; i < value.items.size(); i++) {
            if (std::any_of(shape.members.begin(), shape.members.end(),
                            [&](const Member & each) { return each.name == value.names[i]; })) {
                continue;
            }
            fits.emplace_back();
            for (const FreeMembers & each : shape.free) {
                fits.back().push_back(shapes_.languages.contains(each.names, value.names[i]) &&
                                      allows(each.value, value.items[i]));
            }
            if (std::find(fits.back().begin(), fits.back().end(), true) == fits.back().end()) {
                return false;
            }
        }
        return can_fill(shape, fits, 0);
    }

    // True if each required class from `next` on can have a member of its own, and the others a class that is left.
    static bool can_fill(const ObjectShape & shape, std::vector<std::vector<bool>> & fits, size_t next) {
        if (next == shape.free.size()) {
            return true;
        }
        if (!shape.free[next].required) {
            return can_fill(shape, fits, next + 1);
        }
        for (std::vector<bool> & member : fits) {
            if (member[next]) {
                std::vector<bool> taken(member.size());
                taken.swap(member);
                const bool found = can_fill(shape, fits, next + 1);
                taken.swap(member);
                if (found) {
                    return true;
                }
            }
        }
        return false;
    }

    bool allows(const ArrayShape & shape, const JsonValue & value) {
        if (value.items.size() < shape.least || value.items.size() > shape.most || (shape.unique && repeats(value))) {
            return false;
        }
        std::set<std::vector<uint32_t>> counted = {std::vector<uint32_t>(shape.counters.size())};
        for (size_t i = 0; i < value.items.size() && !counted.empty(); i++) {
            std::set<std::vector<uint32_t>> next;
            for (const ItemAlternative & each : i < shape.first.size() ? shape.first[i] : shape.rest) {
                if (allows(each.value, value.items[i])) {
                    for (std::vector<uint32_t> counts : counted) {
                        for (size_t bit = 0; bit < counts.size(); bit++) {
                            counts[bit] += each.counts >> bit & 1;
                        }
                        next.insert(counts);
                    }
                }
            }
            counted = next;
        }
        return std::any_of(counted.begin(), counted.end(), [&](const std::vector<uint32_t> & counts) {
            for (size_t i = 0; i < counts.size(); i++) {
                if (counts[i] < shape.counters[i].least || counts[i] > shape.counters[i].most) {
                    return false;
                }
            }
            return true;
        });
    }

    static bool repeats(const JsonValue & array) {
        for (size_t i = 0; i < array.items.size(); i++) {
            for (size_t j = 0; j < i; j++) {
                if (equal_values(array.items[i], array.items[j])) {
                    return true;
                }
            }
        }
        return false;
    }
};

// JSON text of a value.
inline std::string json_text(const JsonValue & value) {
    const auto quoted = [](const std::string & text) {
        std::string result = "\"";
        for (const char c : text) {
            char escape[8];
            std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned char>(c));
            result += static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\' ? escape : std::string(1, c);
        }
        return result + '"';
    };
    switch (value.kind) {
    case JsonKind::NIL:
        return "null";
    case JsonKind::YES:
        return "true";
    case JsonKind::NO:
        return "false";
    case JsonKind::NUMBER:
        return value.text;
    case JsonKind::STRING:
        return quoted(value.text);
    case JsonKind::ARRAY:
    case JsonKind::OBJECT:
        break;
    }
    std::string result;
    for (size_t i = 0; i < value.items.size(); i++) {
        result += i > 0 ? "," : "";
        result += value.is_object() ? quoted(value.names[i]) + ":" : "";
        result += json_text(value.items[i]);
    }
    return value.is_array() ? "[" + result + "]" : "{" + result + "}";
}

}  // namespace pyg
