#include "boundary/machine_limits.hpp"

#include "platform/platform.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

namespace {

constexpr uint64_t NO_LIMIT = UINT64_MAX;

// File names in the two versions of the cgroup interface.
struct MemoryFiles {
    const char * limit;
    const char * used;
    const char * reclaimable;  // a line of memory.stat
};

constexpr MemoryFiles MEMORY_V1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr MemoryFiles MEMORY_V2 = {"memory.max", "memory.current", "inactive_file"};

struct Mount {
    std::string root;   // the cgroup at its top, relative to the hierarchy's top
    std::string point;  // mount point
};

std::vector<std::string> words_of(const std::string & line) {
    std::istringstream stream(line);
    return {std::istream_iterator<std::string>(stream), {}};
}

bool lists(const std::string & comma_separated, const std::string & name) {
    return ("," + comma_separated + ",").find("," + name + ",") != std::string::npos;
}

std::optional<uint64_t> number(const std::string & word) {
    char *                   end   = nullptr;
    const unsigned long long value = std::strtoull(word.c_str(), &end, 10);
    const bool               is_it = !word.empty() && word[0] >= '0' && word[0] <= '9' && *end == '\0';
    return is_it ? std::optional<uint64_t>(value) : std::nullopt;  // "max" and "-1" mean none
}

std::vector<std::string> first_line(const std::string & path) {
    std::ifstream file(path);
    std::string   line;
    std::getline(file, line);
    return words_of(line);
}

std::optional<uint64_t> first_number(const std::string & path) {
    const std::vector<std::string> words = first_line(path);
    return words.empty() ? std::nullopt : number(words[0]);
}

// Value of `name` in a file of "name number" lines.
std::optional<uint64_t> named_number(const std::string & path, const std::string & name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const std::vector<std::string> words = words_of(line);
        if (words.size() >= 2 && words[0] == name) {
            return number(words[1]);
        }
    }
    return std::nullopt;
}

// Mount point of a version 1 controller, or of the unified hierarchy (controller "").
std::optional<Mount> find_mount(const std::string & root, const std::string & controller) {
    std::ifstream file(root + "/proc/self/mountinfo");
    for (std::string line; std::getline(file, line);) {
        const std::vector<std::string> words     = words_of(line);
        const auto                     separator = std::find(words.begin(), words.end(), "-");
        if (words.size() < 5 || words.end() - separator < 4) {
            continue;
        }
        const std::string & type    = separator[1];
        const std::string & options = separator[3];
        if (controller.empty() ? type == "cgroup2" : type == "cgroup" && lists(options, controller)) {
            return Mount{words[3], words[4]};
        }
    }
    return std::nullopt;
}

// Cgroup of the process in that hierarchy, relative to its top.
std::optional<std::string> find_group(const std::string & root, const std::string & controller) {
    std::ifstream file(root + "/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const size_t first  = line.find(':');
        const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) {
            continue;
        }
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (controller.empty() ? controllers.empty() : lists(controllers, controller)) {
            return line.substr(second + 1);
        }
    }
    return std::nullopt;
}

// `group` as a path below the mount. A container may see the outside name of its cgroup while only that cgroup is
// mounted inside, or a name outside its namespace ("/.."): then the mount's top is the cgroup.
std::string below_mount(const std::string & group, const std::string & mount_root) {
    const std::string top    = mount_root == "/" ? "" : mount_root;
    const bool        inside = group.compare(0, top.size(), top) == 0 &&
                               (group.size() == top.size() || group[top.size()] == '/') &&
                               group.find("/..") == std::string::npos;
    const std::string below  = inside ? group.substr(top.size()) : "";
    return below == "/" ? "" : below;
}

// Folders of the process's cgroup and of all cgroups above it.
std::vector<std::string> group_folders(const std::string & root, const std::string & controller) {
    const std::optional<Mount>       mount = find_mount(root, controller);
    const std::optional<std::string> group = find_group(root, controller);
    if (!mount || !group) {
        return {};
    }
    std::vector<std::string> folders;
    std::string              below = below_mount(*group, mount->root);
    while (!below.empty()) {
        folders.push_back(root + mount->point + below);
        below.erase(below.rfind('/'));
    }
    folders.push_back(root + mount->point);
    return folders;
}

// Memory left by one cgroup. Inactive file pages are reclaimed first under memory pressure, so they count as free.
uint64_t memory_left(const std::string & folder, const MemoryFiles & files) {
    const std::optional<uint64_t> limit = first_number(folder + "/" + files.limit);
    const std::optional<uint64_t> used  = first_number(folder + "/" + files.used);
    if (!limit || !used) {
        return NO_LIMIT;
    }
    const uint64_t reclaimable = named_number(folder + "/memory.stat", files.reclaimable).value_or(0);
    const uint64_t kept        = *used - std::min(*used, reclaimable);
    return *limit - std::min(*limit, kept);
}

uint64_t memory_left_by_groups(const std::string & root) {
    uint64_t left = NO_LIMIT;
    for (const std::string & folder : group_folders(root, "memory")) {
        left = std::min(left, memory_left(folder, MEMORY_V1));
    }
    for (const std::string & folder : group_folders(root, "")) {
        left = std::min(left, memory_left(folder, MEMORY_V2));
    }
    return left;
}

uint64_t memory_of_machine(const std::string & root) {
    if (const auto kib = named_number(root + "/proc/meminfo", "MemAvailable:")) {
        return *kib * 1024;
    }
    return pyg::platform::main_memory();
}

// Processors of one core list the same siblings.
int32_t physical_cores(const std::vector<int> & processors, const std::string & root) {
    std::set<std::string> cores;
    for (const int processor : processors) {
        const std::string              own = std::to_string(processor);
        const std::vector<std::string> siblings =
            first_line(root + "/sys/devices/system/cpu/cpu" + own + "/topology/thread_siblings_list");
        cores.insert(siblings.empty() ? "alone " + own : siblings[0]);
    }
    return static_cast<int32_t>(cores.size());
}

// Whole cores of a quota, rounded down: compute threads wait for each other at barriers, so one throttled thread delays
// all of them.
int32_t whole_cores(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
    if (!quota || !period || *period == 0) {
        return INT32_MAX;
    }
    return static_cast<int32_t>(std::min<uint64_t>(*quota / *period, INT32_MAX));
}

int32_t cores_left_by_groups(const std::string & root) {
    int32_t left = INT32_MAX;
    for (const std::string & folder : group_folders(root, "cpu")) {
        left = std::min(
            left, whole_cores(first_number(folder + "/cpu.cfs_quota_us"), first_number(folder + "/cpu.cfs_period_us")));
    }
    for (const std::string & folder : group_folders(root, "")) {
        const std::vector<std::string> quota_and_period = first_line(folder + "/cpu.max");
        if (quota_and_period.size() == 2) {
            left = std::min(left, whole_cores(number(quota_and_period[0]), number(quota_and_period[1])));
        }
    }
    return left;
}

}  // namespace

namespace pyg {

uint64_t memory_available(const std::string & root) {
    const pyg_memory_limits limits = memory_limits(root);
    return std::min({limits.machine, limits.groups, limits.address_space});
}

uint64_t address_space_left(const std::string & root) {
    const std::optional<uint64_t> limit = platform::address_space_limit();
    if (!limit) {
        return NO_LIMIT;
    }
    const uint64_t pages = first_number(root + "/proc/self/statm").value_or(0);
    const uint64_t used  = pages * platform::page_size();
    return *limit - std::min(*limit, used);
}

pyg_memory_limits memory_limits(const std::string & root) {
    return {memory_of_machine(root), memory_left_by_groups(root), address_space_left(root)};
}

int32_t cpu_count(const std::vector<int> & processors, const std::string & root) {
    const pyg_cpu_limits limits = cpu_limits(processors, root);
    return std::max(1, std::min(limits.n_cores, limits.n_quota));
}

pyg_cpu_limits cpu_limits(const std::vector<int> & processors, const std::string & root) {
    const int32_t cores = processors.empty() ? static_cast<int32_t>(std::thread::hardware_concurrency())
                                             : physical_cores(processors, root);
    return {static_cast<int32_t>(processors.size()), cores, cores_left_by_groups(root)};
}

}  // namespace pyg

// Return body(), or `otherwise` if there is not even memory for the strings in this file.
template <class T, class Body>
static T or_without_memory(T otherwise, Body && body) {
    try {
        return body();
    } catch (...) {
        return otherwise;
    }
}

uint64_t pyg_memory_available(void) {
    return or_without_memory(uint64_t{0}, [] { return pyg::memory_available(); });
}

void pyg_memory_get_limits(pyg_memory_limits * out) {
    *out = or_without_memory(pyg_memory_limits{0, 0, 0}, [] { return pyg::memory_limits(); });
}

int32_t pyg_cpu_count(void) {
    return or_without_memory(1, [] { return pyg::cpu_count(pyg::platform::allowed_processors()); });
}

void pyg_cpu_get_limits(pyg_cpu_limits * out) {
    *out = or_without_memory(pyg_cpu_limits{0, 1, INT32_MAX},
                             [] { return pyg::cpu_limits(pyg::platform::allowed_processors()); });
}
