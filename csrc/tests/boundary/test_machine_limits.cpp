// Limits of memory and cores, on simulated machines laid out in a folder.
#include "boundary/machine_limits.hpp"
#include "platform/platform.hpp"
#include "tests/support/testing.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>

namespace {

namespace fs = std::filesystem;

constexpr uint64_t MIB = 1024 * 1024;

const char * const MOUNT_V2  = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const char * const MOUNT_V1  = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
                               "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                               "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
const char * const GROUPS_V1 = "5:cpu,cpuacct:/jobs/7\n4:memory:/jobs/7\n1:name=systemd:/\n0::/\n";

// A folder used as "/", removed at the end.
class Machine {
  public:
    Machine(std::initializer_list<std::pair<const char *, std::string>> files) {
        std::string name = (fs::temp_directory_path() / "pyggml-machine-XXXXXX").string();
        CHECK(mkdtemp(name.data()));
        root_ = name;
        write("/proc/meminfo", "MemTotal:  8388608 kB\nMemFree:  1024 kB\nMemAvailable:  4194304 kB\n");  // 4 GiB
        for (const auto & [path, text] : files) {
            write(path, text);
        }
    }
    ~Machine() { fs::remove_all(root_); }
    Machine(const Machine &)             = delete;
    Machine & operator=(const Machine &) = delete;

    const std::string & root() const { return root_; }
    uint64_t            memory() const { return pyg::memory_available(root_); }
    int32_t             cores(const std::vector<int> & processors) const { return pyg::cpu_count(processors, root_); }

  private:
    void write(const std::string & path, const std::string & text) {
        const fs::path file = root_ + path;
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }

    std::string root_;
};

std::string mib(uint64_t n) { return std::to_string(n * MIB) + "\n"; }

void test_machine_without_groups() {
    const Machine machine({});
    CHECK(machine.memory() == 4096 * MIB);
    CHECK(machine.cores({0, 1, 2}) == 3);
    CHECK(pyg::memory_limits(machine.root()).groups == UINT64_MAX);
    CHECK(pyg::cpu_limits({0, 1, 2}, machine.root()).n_quota == INT32_MAX);
}

void test_machine_that_tells_nothing() {
    CHECK(pyg::memory_available("/nowhere") > 0);  // the physical memory of the real one
    CHECK(pyg::cpu_count({}, "/nowhere") >= 1);
}

void test_v2_group() {
    const Machine machine({
        {"/proc/self/mountinfo", MOUNT_V2},
        {"/proc/self/cgroup", "0::/jobs/7\n"},
        {"/sys/fs/cgroup/jobs/7/memory.max", mib(1000)},
        {"/sys/fs/cgroup/jobs/7/memory.current", mib(700)},
        {"/sys/fs/cgroup/jobs/7/memory.stat", "anon 1\ninactive_file " + mib(100) + "active_file 5\n"},
        {"/sys/fs/cgroup/jobs/7/cpu.max", "250000 100000\n"},
    });
    CHECK(machine.memory() == 400 * MIB);
    CHECK(machine.cores({0, 1, 2, 3}) == 2);

    const pyg_memory_limits memory = pyg::memory_limits(machine.root());
    CHECK(memory.machine == 4096 * MIB);
    CHECK(memory.groups == 400 * MIB);
    CHECK(memory.address_space == UINT64_MAX);
    const pyg_cpu_limits cpu = pyg::cpu_limits({0, 1, 2, 3}, machine.root());
    CHECK(cpu.n_processors == 4 && cpu.n_cores == 4 && cpu.n_quota == 2);
}

void test_v2_ancestor_is_tighter() {
    const Machine machine({
        {"/proc/self/mountinfo", MOUNT_V2},
        {"/proc/self/cgroup", "0::/jobs/7/inner\n"},
        {"/sys/fs/cgroup/jobs/7/inner/memory.max", "max\n"},
        {"/sys/fs/cgroup/jobs/7/inner/memory.current", mib(10)},
        {"/sys/fs/cgroup/jobs/7/inner/cpu.max", "max 100000\n"},
        {"/sys/fs/cgroup/jobs/7/memory.max", mib(1000)},
        {"/sys/fs/cgroup/jobs/7/memory.current", mib(10)},
        {"/sys/fs/cgroup/jobs/memory.max", mib(500)},
        {"/sys/fs/cgroup/jobs/memory.current", mib(450)},
        {"/sys/fs/cgroup/jobs/cpu.max", "100000 100000\n"},
    });
    CHECK(machine.memory() == 50 * MIB);
    CHECK(machine.cores({0, 1, 2, 3}) == 1);
}

void test_v2_group_over_its_limit_leaves_nothing() {
    const Machine machine({
        {"/proc/self/mountinfo", MOUNT_V2},
        {"/proc/self/cgroup", "0::/jobs\n"},
        {"/sys/fs/cgroup/jobs/memory.max", mib(100)},
        {"/sys/fs/cgroup/jobs/memory.current", mib(120)},
        {"/sys/fs/cgroup/jobs/memory.stat", "inactive_file " + mib(5)},
        {"/sys/fs/cgroup/jobs/cpu.max", "20000 100000\n"},
    });
    CHECK(machine.memory() == 0);
    CHECK(machine.cores({0, 1}) == 1);  // a fifth of a core is still one thread
}

void test_v2_container_mounts_only_its_own_group() {
    const Machine machine({
        {"/proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
        {"/proc/self/cgroup", "0::/docker/abc/worker\n"},
        {"/sys/fs/cgroup/memory.max", mib(300)},
        {"/sys/fs/cgroup/memory.current", mib(100)},
        {"/sys/fs/cgroup/worker/memory.max", mib(150)},
        {"/sys/fs/cgroup/worker/memory.current", mib(100)},
    });
    CHECK(machine.memory() == 50 * MIB);
}

void test_v2_group_outside_of_the_namespace() {
    for (const char * group : {"0::/../outside\n", "0::/docker/abcdef\n"}) {
        const Machine machine({
            {"/proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
            {"/proc/self/cgroup", group},
            {"/sys/fs/cgroup/memory.max", mib(300)},
            {"/sys/fs/cgroup/memory.current", mib(100)},
            {"/sys/fs/cgroup/outside/memory.max", mib(1)},
            {"/sys/fs/cgroup/def/memory.max", mib(1)},
        });
        CHECK(machine.memory() == 200 * MIB);
    }
}

void test_v1_groups() {
    const Machine machine({
        {"/proc/self/mountinfo", MOUNT_V1},
        {"/proc/self/cgroup", GROUPS_V1},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},  // the kernel's "none"
        {"/sys/fs/cgroup/memory/memory.usage_in_bytes", mib(5000)},
        {"/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", mib(800)},
        {"/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", mib(600)},
        {"/sys/fs/cgroup/memory/jobs/memory.stat", "inactive_file 1\ntotal_inactive_file " + mib(50)},
        {"/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", mib(2000)},
        {"/sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes", mib(10)},
        {"/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "300000\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "-1\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us", "100000\n"},
    });
    CHECK(machine.memory() == 250 * MIB);
    CHECK(machine.cores({0, 1, 2, 3, 4, 5}) == 3);
}

void test_broken_files_set_no_limit() {
    const Machine machine({
        {"/proc/self/mountinfo", std::string("\nx\n30 23 0:26 / /m\n- - - -\n") + MOUNT_V2},
        {"/proc/self/cgroup", "no colons\n:\n0::/jobs\n"},
        {"/sys/fs/cgroup/jobs/memory.max", "12x\n"},
        {"/sys/fs/cgroup/jobs/memory.current", ""},
        {"/sys/fs/cgroup/jobs/cpu.max", "100000 0\n"},
        {"/sys/fs/cgroup/cpu.max", "100000\n"},
    });
    CHECK(machine.memory() == 4096 * MIB);
    CHECK(machine.cores({0, 1}) == 2);
}

void test_hyperthreads_share_a_core() {
    const char * const siblings = "/topology/thread_siblings_list";
    const std::string  cpu      = "/sys/devices/system/cpu/cpu";
    const std::string  cpu0 = cpu + "0" + siblings, cpu1 = cpu + "1" + siblings, cpu4 = cpu + "4" + siblings;
    const Machine      machine({
        {cpu0.c_str(), "0,4\n"},
        {cpu1.c_str(), "1,5\n"},
        {cpu4.c_str(), "0,4\n"},
    });
    CHECK(machine.cores({0, 1, 4}) == 2);
    CHECK(machine.cores({4}) == 1);
    CHECK(machine.cores({0, 4, 9}) == 2);  // unknown processor 9
}

void test_this_machine() {
    CHECK(pyg::memory_available() > 0);
    CHECK(!pyg::platform::allowed_processors().empty());
    CHECK(pyg::cpu_count(pyg::platform::allowed_processors()) <=
          static_cast<int32_t>(pyg::platform::allowed_processors().size()));
}

}  // namespace

int main() {
    test_machine_without_groups();
    test_machine_that_tells_nothing();
    test_v2_group();
    test_v2_ancestor_is_tighter();
    test_v2_group_over_its_limit_leaves_nothing();
    test_v2_container_mounts_only_its_own_group();
    test_v2_group_outside_of_the_namespace();
    test_v1_groups();
    test_broken_files_set_no_limit();
    test_hyperthreads_share_a_core();
    test_this_machine();
}
