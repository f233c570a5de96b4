// How long a chat template may run; see jinja_limits.h for how it is stopped.
#pragma once

namespace pyg {

// Restarts the time limit for everything this thread renders until the next call.
void start_jinja_clock() noexcept;

}  // namespace pyg
