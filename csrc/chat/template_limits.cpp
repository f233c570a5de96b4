#include "chat/template_limits.hpp"

#include "boundary/large_stack.hpp"
#include "chat/linear_time_search.hpp"
#include "platform/platform.hpp"

#include <cstdint>
#include <istream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

// Requires sized deallocation, and the current ABI of strings: older ones share one empty string per library, which
// other libraries could not free.
#if defined(PYGGML_WRAPS_NEW) && defined(__cpp_sized_deallocation) && defined(_GLIBCXX_RELEASE)
#    if _GLIBCXX_RELEASE >= 9 && _GLIBCXX_USE_CXX11_ABI
#        define PYG_COUNTS_MEMORY
#    endif
#endif

namespace {

constexpr int64_t  MAX_CPU_NS               = 3'000'000'000;  // the longest conversations take milliseconds
constexpr uint32_t ALLOCATIONS_OF_A_STEP    = 4;              // that take as long as a step
constexpr uint32_t ALLOCATIONS_TO_NEXT_LOOK = 256;      // between two looks at the clock, which costs as much as ten
constexpr uint32_t MAX_COMPARED             = 1 << 24;  // half a second, and as much again to hash the values
constexpr size_t   OVERHEAD                 = 16;       // bytes per allocation that malloc needs

constexpr const char * TOO_LARGE = "the template takes too much memory";
constexpr const char * TOO_DEEP  = "the template calls itself, or nests lists, too many times";
constexpr const char * ENDLESS   = "the template does not end";

// Limits of the templates on one thread.
struct State {
    bool         limited  = false;
    bool         counts   = false;  // limits are set, and none is exceeded
    int64_t      left     = 0;      // bytes that the thread may still allocate
    int64_t      start    = 0;      // nanoseconds of its CPU time
    uint32_t     work     = 0;      // since the last look at the clock
    uint32_t     compared = 0;
    const char * exceeded = nullptr;
    bool         told     = false;  // std::runtime_error has been thrown
    bool         lacks    = false;  // an allocation within the limits failed
};

thread_local State t;

void exceed(const char * limit) noexcept {
    t.counts   = false;
    t.exceeded = limit;
}

void work(uint32_t n_allocations) noexcept {
    t.work += n_allocations;
    if (pyg::stack_half_used()) {
        exceed(TOO_DEEP);
    } else if (t.work >= ALLOCATIONS_TO_NEXT_LOOK) {
        t.work = 0;
        if (pyg::platform::thread_cpu_ns() - t.start > MAX_CPU_NS) {
            exceed(ENDLESS);
        }
    }
}

}  // namespace

namespace pyg {

TemplateLimits::TemplateLimits(size_t max_bytes) noexcept {
    t = {/*limited =*/true, /*counts =*/true, static_cast<int64_t>(max_bytes), platform::thread_cpu_ns()};
}

TemplateLimits::~TemplateLimits() {
    t.limited = false;
    t.counts  = false;
}

void TemplateLimits::step() {
    if (t.counts) {
        work(ALLOCATIONS_OF_A_STEP);
    }
    if (t.limited && (t.exceeded || t.lacks)) {
        if (t.told || t.lacks) {
            throw TemplateStopped();
        }
        t.told = true;
        throw std::runtime_error(t.exceeded);
    }
}

void TemplateLimits::compare() {
    if (t.counts && ++t.compared > MAX_COMPARED) {
        exceed(ENDLESS);
    }
    step();
}

const char * TemplateLimits::exceeded() noexcept { return t.exceeded; }

bool TemplateLimits::lacked_memory() noexcept { return t.lacks; }

}  // namespace pyg

#ifdef PYGGML_WRAPS_NEW

namespace {

#    ifdef PYG_COUNTS_MEMORY

class Refused : public std::bad_alloc {
  public:
    const char * what() const noexcept override { return t.exceeded; }
};

// Count an allocation. Return false beyond the limits.
bool take(size_t size) noexcept {
    work(1);
    if (t.counts && static_cast<int64_t>(size) > t.left) {
        exceed(TOO_LARGE);
    }
    t.left -= static_cast<int64_t>(size + OVERHEAD);
    return !t.exceeded;
}

void give_back(size_t size) noexcept { t.left += static_cast<int64_t>(size + OVERHEAD); }

#    else

using Refused = std::bad_alloc;

bool take(size_t /*size*/) noexcept { return true; }
void give_back(size_t /*size*/) noexcept {}

#    endif

}  // namespace

// Mangled names of `operator new` and the sized `operator delete`, as the linker's option --wrap renames them.
// Containers call no others, except for alignments above 16 bytes.
extern "C" {

void * __real__Znwm(size_t size);
void * __real__ZnwmRKSt9nothrow_t(size_t size, const std::nothrow_t & tag) noexcept;
void   __real__ZdlPvm(void * memory, size_t size) noexcept;

void * __wrap__Znwm(size_t size);
void * __wrap__ZnwmRKSt9nothrow_t(size_t size, const std::nothrow_t & tag) noexcept;
void   __wrap__ZdlPvm(void * memory, size_t size) noexcept;

void * __wrap__Znwm(size_t size) {
    if (!t.counts) {
        return __real__Znwm(size);
    }
    if (!take(size)) {
        throw Refused();
    }
    try {
        return __real__Znwm(size);
    } catch (const std::bad_alloc &) {
        t.lacks = true;
        throw;
    }
}

void * __wrap__ZnwmRKSt9nothrow_t(size_t size, const std::nothrow_t & tag) noexcept {
    if (t.counts && !take(size)) {
        return nullptr;
    }
    return __real__ZnwmRKSt9nothrow_t(size, tag);
}

void __wrap__ZdlPvm(void * memory, size_t size) noexcept {
    if (t.counts && memory) {
        give_back(size);
    }
    __real__ZdlPvm(memory, size);
}

// Likewise std::string::find and rfind with pointer and size.
size_t __wrap__ZNKSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE4findEPKcmm(const std::string * text,
                                                                                const char * part, size_t position,
                                                                                size_t part_size) noexcept;
size_t __wrap__ZNKSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE5rfindEPKcmm(const std::string * text,
                                                                                 const char * part, size_t position,
                                                                                 size_t part_size) noexcept;

size_t __wrap__ZNKSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE4findEPKcmm(const std::string * text,
                                                                                const char * part, size_t position,
                                                                                size_t part_size) noexcept {
    return pyg::find_text(*text, part, position, part_size);
}

size_t __wrap__ZNKSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE5rfindEPKcmm(const std::string * text,
                                                                                 const char * part, size_t position,
                                                                                 size_t part_size) noexcept {
    return pyg::rfind_text(*text, part, position, part_size);
}
}

#endif

#ifdef PYG_COUNTS_MEMORY

// Members of the standard library's own object file that allocate, instantiated again here so that their allocations
// are counted, not only their frees. Not visible outside this module.
template class std::basic_string<char>;
template class std::basic_stringbuf<char>;
template class std::basic_istringstream<char>;
template class std::basic_ostringstream<char>;
template class std::basic_stringstream<char>;
template std::istream & std::getline(std::istream & in, std::string & line);

template <>
std::istream & std::getline(std::istream & in, std::string & line, char end) {
    const std::istream::sentry ready(in, true);
    if (!ready) {
        return in;
    }
    line.clear();
    std::ios_base::iostate state = std::ios_base::failbit;  // unless there is anything to read
    while (true) {
        const int c = in.rdbuf()->sbumpc();
        if (c == std::char_traits<char>::eof()) {
            state |= std::ios_base::eofbit;
            break;
        }
        state = std::ios_base::goodbit;
        if (std::char_traits<char>::to_char_type(c) == end) {
            break;
        }
        line.push_back(static_cast<char>(c));
    }
    in.setstate(state);
    return in;
}

#endif
