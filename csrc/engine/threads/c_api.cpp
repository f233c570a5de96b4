#include "boundary/guard.hpp"
#include "boundary/machine_limits.hpp"
#include "engine/threads/thread_tuner.hpp"

struct pyg_thread_tuner {
    pyg::ThreadTuner self{pyg_cpu_count()};
};

pyg_status pyg_thread_tuner_new(pyg_thread_tuner ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_thread_tuner(); });
}

void pyg_thread_tuner_free(pyg_thread_tuner * tuner) { delete tuner; }

int32_t pyg_thread_tuner_begin(pyg_thread_tuner * tuner, uint32_t n_tokens) { return tuner->self.threads(n_tokens); }

void pyg_thread_tuner_measured(pyg_thread_tuner * tuner, uint32_t n_tokens, double seconds, double own_seconds) {
    tuner->self.measured(n_tokens, seconds, own_seconds);
}

void pyg_thread_tuner_abandoned(pyg_thread_tuner * tuner) { tuner->self.abandoned(); }
