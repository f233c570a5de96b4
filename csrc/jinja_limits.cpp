#include "jinja_limits.hpp"

#include "deep_stack.hpp"

#include <ctime>
#include <stdexcept>

namespace {

constexpr time_t   MAX_CPU_S           = 3;  // the longest conversations take milliseconds
constexpr uint32_t STEPS_BETWEEN_LOOKS = 4;

// Upstream tries a template with many conversations when it is read. One that had to be stopped fails at once in all
// that follow.
thread_local const char * t_stopped = nullptr;
thread_local timespec     t_start   = {};
thread_local uint32_t     t_steps   = 0;

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

void pyg_jinja_step();

void pyg_jinja_step() {
    if (pyg::deep_in_stack()) {
        t_stopped = "the template calls itself too often";
    } else if (++t_steps % STEPS_BETWEEN_LOOKS == 0 && cpu_time().tv_sec - t_start.tv_sec > MAX_CPU_S) {
        t_stopped = "the template does not come to an end";
    }
    if (t_stopped) {
        throw std::runtime_error(t_stopped);
    }
}
