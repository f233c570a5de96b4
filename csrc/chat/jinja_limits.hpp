// How long a chat template may run; see jinja_limits.h for how it is stopped.
#pragma once

namespace pyg {

// What this thread renders from here on has the time of one template, all together.
void start_jinja_clock() noexcept;

}  // namespace pyg
