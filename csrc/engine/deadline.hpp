// Deadlines from timeouts in seconds.
#pragma once

#include "boundary/guard.hpp"

#include <chrono>
#include <cmath>
#include <optional>

namespace pyg {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

inline double seconds_since(Clock::time_point start) { return seconds_between(start, Clock::now()); }

// Return the deadline; nothing for negative seconds, which mean no limit. PYG_ERR_INVALID_PARAMETER for NaN.
inline std::optional<Clock::time_point> deadline_after(double timeout_s) {
    if (std::isnan(timeout_s)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "timeout_s must be a number of seconds, not NaN");
    }
    constexpr double LONG_S = 1e9;  // longer timeouts would overflow the clock's arithmetic
    if (timeout_s < 0 || timeout_s > LONG_S) {
        return std::nullopt;
    }
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
}

}  // namespace pyg
