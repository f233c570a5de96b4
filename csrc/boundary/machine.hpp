// What the machine, the control groups above the process and its own limits leave it: memory and cores.
//
// `root` stands before every path that is read, so that a test can lay out a machine of its own in a folder.
// Whatever cannot be read sets no limit.
#pragma once

#include "pyggml.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

// Bytes of main memory this process may still take: the least of the limits.
uint64_t memory_available(const std::string & root = "");

pyg_memory_limits memory_limits(const std::string & root = "");

// The processors this process may run on; empty where the system does not tell.
std::vector<int> allowed_processors();

// Physical cores among `processors`, cut to the control groups' quotas; at least 1.
int32_t cpu_count(const std::vector<int> & processors, const std::string & root = "");

pyg_cpu_limits cpu_limits(const std::vector<int> & processors, const std::string & root = "");

}  // namespace pyg
