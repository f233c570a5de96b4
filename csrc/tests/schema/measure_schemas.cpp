// Official tests of JSON Schema, or instances of MaskBench, held against compiled schemas.
//
//   measure_schemas suite DRAFT FILE...      files of the JSON-Schema-Test-Suite; DRAFT: a URI for $schema
//   measure_schemas instances FILE...        files with {"schema": ..., "tests": [{"data": ..., "valid": ...}]}
//
// Prints what is refused and what is wrong, then sums. Neither data set is part of this repository.
#include "boundary/guard.hpp"
#include "schema/compile.hpp"
#include "tests/support/schema_follower.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace {

using namespace pyg;

struct Sums {
    size_t n_schemas = 0, n_refused = 0, n_narrowed = 0;
    size_t n_valid = 0, n_invalid = 0, n_passed = 0, n_valid_refused = 0, n_invalid_allowed = 0, n_of_refused = 0;
    std::vector<double> times_ms;
};

std::string contents(const char * path) {
    std::ifstream     file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string with_draft(const JsonValue & schema, const char * draft) {
    const std::string text = json_text(schema);
    if (draft == nullptr || !schema.is_object() || schema.find("$schema") != nullptr) {
        return text;
    }
    return std::string("{\"$schema\":\"") + draft + "\"" + (schema.items.empty() ? "" : ",") + text.substr(1);
}

void run(const std::string & label, const std::string & schema, const JsonValue & tests, const SchemaOptions & options,
         Sums & sums) {
    sums.n_schemas++;
    std::unique_ptr<SchemaShapes> shapes;
    std::string                   refusal;
    const auto                    begin = std::chrono::steady_clock::now();
    try {
        shapes = compile_schema(schema, options);
    } catch (const Failure & failure) {
        refusal = failure.message;
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    sums.times_ms.push_back(took.count());
    if (took.count() > 50) {
        std::printf("SLOW %.0f ms %s\n", took.count(), label.c_str());
    }
    const bool is_empty =
        refusal.find("no value can match") != std::string::npos || refusal.find("no number") != std::string::npos ||
        refusal.find("no integer") != std::string::npos || refusal.find("can match") != std::string::npos ||
        refusal.find("is required, but") != std::string::npos;
    const bool is_narrowed =
        shapes != nullptr && std::any_of(shapes->notes.begin(), shapes->notes.end(), [](const std::string & note) {
            return note.find("uniqueItems") != std::string::npos;
        });
    if (!refusal.empty() && !is_empty) {
        sums.n_refused++;
        sums.n_of_refused += tests.items.size();
        std::printf("REFUSED %s: %.300s\n", label.c_str(), refusal.c_str());
        return;
    }
    for (const JsonValue & test : tests.items) {
        const bool valid   = test.find("valid")->kind == JsonKind::YES;
        bool       allowed = false;
        if (shapes != nullptr) {
            try {
                allowed = SchemaFollower(*shapes).allows(*test.find("data"));
            } catch (const Failure & failure) {
                std::printf("FAILED %s: %s\n", label.c_str(), failure.message.c_str());
            }
        }
        (valid ? sums.n_valid : sums.n_invalid)++;
        const char * description = test.find("description") == nullptr ? "" : test.find("description")->text.c_str();
        if (valid == allowed) {
            sums.n_passed++;
        } else if (valid && is_narrowed) {
            sums.n_narrowed++;
        } else if (valid) {
            sums.n_valid_refused++;
            std::printf("VALID REFUSED %s: %s: %.150s %s\n", label.c_str(), description,
                        json_text(*test.find("data")).c_str(), refusal.c_str());
        } else {
            sums.n_invalid_allowed++;
            std::printf("INVALID ALLOWED %s: %s: %.150s\n", label.c_str(), description,
                        json_text(*test.find("data")).c_str());
        }
    }
}

void run_suite(const char * draft, const char * path, Sums & sums) {
    JsonValue groups;
    parse_json(contents(path), groups);
    SchemaOptions options;
    options.refuse_misspelled     = false;
    options.requires_free_members = true;
    options.assert_formats        = std::strstr(path, "/optional/format/") != nullptr;
    for (const JsonValue & group : groups.items) {
        run(std::string(path) + ": " + group.find("description")->text, with_draft(*group.find("schema"), draft),
            *group.find("tests"), options, sums);
    }
}

void run_instances(const char * path, Sums & sums) {
    JsonValue file;
    try {
        parse_json(contents(path), file);
    } catch (const Failure & failure) {
        std::printf("UNREADABLE %s: %s\n", path, failure.message.c_str());
        return;
    }
    SchemaOptions options;
    options.refuse_misspelled     = false;
    options.requires_free_members = true;
    run(path, json_text(*file.find("schema")), *file.find("tests"), options, sums);
}

}  // namespace

int main(int argc, char ** argv) {
    Sums       sums;
    const bool is_suite = argc > 3 && std::strcmp(argv[1], "suite") == 0;
    if (!is_suite && !(argc > 2 && std::strcmp(argv[1], "instances") == 0)) {
        std::fprintf(stderr, "usage: measure_schemas suite DRAFT FILE... | instances FILE...\n");
        return 2;
    }
    for (int i = is_suite ? 3 : 2; i < argc; i++) {
        if (is_suite) {
            run_suite(argv[2], argv[i], sums);
        } else {
            run_instances(argv[i], sums);
        }
    }
    std::sort(sums.times_ms.begin(), sums.times_ms.end());
    const auto at = [&](double part) {
        return sums.times_ms.empty()
                   ? 0.0
                   : sums.times_ms[static_cast<size_t>(part * static_cast<double>(sums.times_ms.size() - 1))];
    };
    std::printf("schemas %zu, refused %zu with %zu tests; tests: passed %zu, narrowed %zu, valid refused %zu of %zu, "
                "invalid allowed %zu of %zu\n",
                sums.n_schemas, sums.n_refused, sums.n_of_refused, sums.n_passed, sums.n_narrowed, sums.n_valid_refused,
                sums.n_valid, sums.n_invalid_allowed, sums.n_invalid);
    std::printf("compile ms: p50 %.3f p90 %.3f p99 %.3f max %.1f\n", at(0.5), at(0.9), at(0.99), at(1.0));
    return 0;
}
