#include "kernels/backend/memory_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace pyg::kernels {

namespace {

// End of the mapping that contains address `at`, if it is shared; otherwise `at`.
uintptr_t end_of_shared_mapping(uintptr_t at) {
    const std::unique_ptr<FILE, int (*)(FILE *)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
    char                                         line[64];  // the start of a line suffices
    bool                                         at_beginning = true;
    while (maps && std::fgets(line, sizeof(line), maps.get())) {
        uintptr_t begin, end;
        char      shared;
        if (at_beginning && std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*3c%c", &begin, &end, &shared) == 3 &&
            begin <= at && at < end) {
            return shared == 's' ? end : at;
        }
        at_beginning = line[std::char_traits<char>::length(line) - 1] == '\n';
    }
    return at;
}

// Call madvise for the whole pages of [begin, end). It may fail.
void advise(uintptr_t begin, uintptr_t end, int advice) {
    const auto page  = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto first = (begin + page - 1) / page * page;
    const auto last  = end / page * page;
    if (first < last) {
        (void) madvise(reinterpret_cast<void *>(first), last - first, advice);
    }
}

}  // namespace

void release_mapped_pages(const void * from, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(from);
    advise(begin, std::min(begin + bytes, end_of_shared_mapping(begin)), MADV_DONTNEED);
}

void * allocate_pages(size_t bytes) {
    void * const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) {
        return nullptr;
    }
    const auto at = reinterpret_cast<uintptr_t>(begin);
    advise(at, at + bytes, MADV_HUGEPAGE);
    return begin;
}

void free_pages(void * begin, size_t bytes) { munmap(begin, bytes); }

}  // namespace pyg::kernels
