#include "chat/jinja_limits.hpp"

#include "boundary/deep_stack.hpp"
#include "chat/template_memory.hpp"
#include "jinja/runtime.h"

#include <cmath>
#include <ctime>
#include <stdexcept>

namespace {

constexpr time_t   MAX_CPU_S           = 3;  // the longest conversations take milliseconds
constexpr uint32_t STEPS_BETWEEN_LOOKS = 16;
constexpr int      MAX_RANGE           = 100000;  // the limit of jinja2's sandbox
constexpr double   MAX_NUMBER          = 1e18;    // upstream counts one step past the end of a range

// Upstream tries a new template with many conversations. Once it had to be stopped, it fails at once in all the others.
thread_local const char * t_stopped = nullptr;
thread_local timespec     t_start   = {};
thread_local uint32_t     t_steps   = 0;

// Upstream turns ranges into lists, which could take all memory.
void require_short_range(const jinja::func_args & args) {
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < args.count(); i++) {
        if (!jinja::is_val<jinja::value_int>(args.get_pos(i))) {
            return;  // upstream rejects it
        }
        numbers.push_back(args.get_pos(i)->as_int());
    }
    if (numbers.empty() || numbers.size() > 3) {
        return;
    }
    const double start = numbers.size() == 1 ? 0.0 : static_cast<double>(numbers[0]);
    const double stop  = static_cast<double>(numbers[numbers.size() == 1 ? 0 : 1]);
    const double step  = numbers.size() == 3 ? static_cast<double>(numbers[2]) : 1.0;
    if (std::abs(start) > MAX_NUMBER || std::abs(stop) > MAX_NUMBER || std::abs(step) > MAX_NUMBER) {
        throw std::runtime_error("a range of numbers that are too large");
    }
    if (step != 0.0 && (stop - start) / step > MAX_RANGE) {
        throw std::runtime_error("a range of more than " + std::to_string(MAX_RANGE) + " numbers");
    }
}

timespec cpu_time() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now;
}

}  // namespace

namespace pyg {

void start_jinja_clock() noexcept {
    t_stopped = nullptr;
    t_start   = cpu_time();
}

}  // namespace pyg

void                         pyg_jinja_step();
const jinja::func_builtins & pyg_jinja_builtins();

const jinja::func_builtins & pyg_jinja_builtins() {
    static const jinja::func_builtins limited = [] {
        jinja::func_builtins all = jinja::global_builtins();
        all["range"]             = [range = all.at("range")](const jinja::func_args & args) {
            require_short_range(args);
            return range(args);
        };
        return all;
    }();
    return limited;
}

void pyg_jinja_step() {
    if (pyg::TemplateMemory::refusal()) {
        t_stopped = pyg::TemplateMemory::refusal();
    } else if (pyg::deep_in_stack()) {
        t_stopped = pyg::TOO_DEEP;
    } else if (++t_steps % STEPS_BETWEEN_LOOKS == 0 && cpu_time().tv_sec - t_start.tv_sec > MAX_CPU_S) {
        t_stopped = "the template does not end";
    }
    if (t_stopped) {
        throw std::runtime_error(t_stopped);
    }
}
