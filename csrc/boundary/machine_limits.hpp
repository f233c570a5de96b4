// Limits on memory and CPU cores: the machine's, those of the cgroups above the process, and its own.
//
// `root` is prepended to every path that is read, for tests. A limit that cannot be read does not apply.
#pragma once

#include "pyggml.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

// Available main memory in bytes: the minimum of the limits.
uint64_t memory_available(const std::string & root = "");

// Address space left below `ulimit -v`; reads no file if there is no such limit.
uint64_t address_space_left(const std::string & root = "");

pyg_memory_limits memory_limits(const std::string & root = "");

// Physical cores among `processors`, limited by the cgroups' quotas; at least 1. No processors mean that they are
// unknown (platform::allowed_processors).
int32_t cpu_count(const std::vector<int> & processors, const std::string & root = "");

pyg_cpu_limits cpu_limits(const std::vector<int> & processors, const std::string & root = "");

}  // namespace pyg
