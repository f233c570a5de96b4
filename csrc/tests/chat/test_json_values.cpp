// Freeing JSON values needs no memory, however deep and wide they are (chat/json_values.h).
#include "json.h"
#include "tests/support/scarce_memory.hpp"
#include "tests/support/testing.hpp"

#include <memory>
#include <string>

namespace {

std::string repeated(const std::string & text, size_t n) {
    std::string all;
    for (size_t i = 0; i < n; i++) {
        all += text;
    }
    return all;
}

void check_is_freed_without_memory(const std::string & text) {
    auto value = std::make_unique<common_json>(common_json::parse(text));
    CHECK(!value->is_discarded());
    const Scarce none(0);
    value.reset();
}

// A value that could not become an object is freed, alone and inside others.
void check_making_fails_alone() {
    std::string made;
    const long  n_failures = with_ever_more_memory([&] {
        common_json list = common_json::array();
        list.push_back(nullptr);
        list.at(0)["a"]    = common_json::array();
        list.at(0)["b"]    = "a text that takes memory of its own";
        list.at(0)["c"]    = list;
        g_allocations_left = -1;
        made               = list.dump();
    });
    CHECK(n_failures > 0);
    CHECK(made.find(R"("c":[{"a":[],"b":")") != std::string::npos);
}

// A partly parsed value is freed, too.
void check_reading_fails_alone(const std::string & text) {
    std::string read;
    const long  n_failures = with_ever_more_memory([&] {
        const common_json value = common_json::parse(text);
        g_allocations_left      = -1;
        read                    = value.dump();
    });
    CHECK(n_failures > 0);
    CHECK(read == text);
}

}  // namespace

int main() {
    const size_t      deep   = 100000;
    const std::string nested = R"({"a":[1,"two",{"b":[[],{},null],"c":"three"},[[4]]],"d":{"e":[5,{"f":{}}]},"g":[]})";
    check_is_freed_without_memory("[]");
    check_is_freed_without_memory("7");
    check_is_freed_without_memory(nested);
    check_is_freed_without_memory("[" + repeated(nested + ",", 1000) + "0]");
    check_is_freed_without_memory(repeated("[", deep) + repeated("]", deep));
    check_is_freed_without_memory(repeated("[[],", deep) + "{}" + repeated("]", deep));
    check_is_freed_without_memory(repeated(R"({"a":0,"b":[)", deep) + repeated("]}", deep));
    check_making_fails_alone();
    check_reading_fails_alone(nested);
    return 0;
}
