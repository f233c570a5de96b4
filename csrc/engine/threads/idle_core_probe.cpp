#include "engine/threads/idle_core_probe.hpp"

#include "boundary/machine_limits.hpp"
#include "platform/platform.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

namespace {

using namespace std::chrono_literals;
using Clock       = std::chrono::steady_clock;
using Observation = pyg::IdleCoreProbe::Observation;

constexpr auto WINDOW = 10ms;
// a waking thread is placed on an idle core; one that keeps spinning may stay on a busy one
constexpr auto   PAUSE      = 10ms;
constexpr auto   MAX_PAUSE  = 250ms;  // when a core has been idle for long
constexpr auto   GAP        = 5ms;    // between two steps: after a longer gap cores look idle because nothing computes
constexpr double FREE_SHARE = 0.9;

int64_t now_ns() { return Clock::now().time_since_epoch().count(); }

int64_t to_ns(Clock::duration duration) { return duration.count(); }

// Threads that are running or ready to run on the machine, this one included; 0 if the system does not say.
int32_t n_running_threads() {
    std::ifstream file("/proc/loadavg");
    double        load      = 0;
    int32_t       n_running = 0;
    return file >> load >> load >> load >> n_running ? n_running : 0;
}

// Many threads run only for a moment, so the least of a few counts is taken. A process that may use only some of the
// cores is assumed to have its share of the idle ones.
int32_t n_idle_cores() {
    constexpr int  N_COUNTS = 4;
    constexpr auto APART    = 300us;

    const auto n_allowed = static_cast<int32_t>(pyg::platform::allowed_processors().size());
    const auto n_online  = std::max({n_allowed, pyg::platform::n_online_processors(), 1});
    int32_t    n_others  = n_online;
    for (int i = 0; i < N_COUNTS && n_others > 0; i++) {
        if (i > 0) {
            std::this_thread::sleep_for(APART);
        }
        const int32_t n_running = n_running_threads();
        if (n_running == 0) {
            return INT32_MAX;
        }
        n_others = std::min(n_others, n_running - 1);
    }
    return static_cast<int32_t>(int64_t{n_allowed} * (n_online - n_others) / n_online);
}

// State shared by the engine's thread and the helper. The engine's thread takes no lock while computing: the helper
// could hold it when it loses its core (priority inversion).
class ProbeState final : public pyg::IdleCoreProbe {
  public:
    void stop() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
        }
        wake_.notify_one();
    }

    void run() {
        pyg::platform::name_this_thread("pyggml-probe");
        // If the system refuses, the windows are still short, and busy cores are still detected.
        pyg::platform::take_lowest_priority();
        while (sleep_until_wanted()) {
            measure_window();
            pause(std::clamp(PAUSE * (observation().n_free / 4), PAUSE, MAX_PAUSE));
        }
    }

    void step_begins(int32_t n_threads) override {
        if (n_threads && n_threads != last_n_threads_) {
            reset();
            last_n_threads_ = n_threads;
        }
        if (!wanted_ || now_ns() - ended_ns_ > to_ns(GAP)) {
            n_breaks_++;
        }
        stepping_ = true;
        wanted_   = n_threads != 0;
        if (wanted_ && asleep_) {
            wake_.notify_one();  // lost if the helper is about to sleep, but the next step repeats it
        }
    }

    void step_ends() override {
        ended_ns_ = now_ns();
        stepping_ = false;
    }

    void        reset() override { series_++; }
    Observation observation() const override { return observation_of(series_); }
    int32_t     n_idle_cores() const override { return ::n_idle_cores(); }

  private:
    void pause(std::chrono::milliseconds length) {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait_for(lock, length, [this] { return stop_.load(); });
    }

    bool sleep_until_wanted() {
        std::unique_lock<std::mutex> lock(mutex_);
        asleep_ = true;
        wake_.wait(lock, [this] { return stop_ || wanted(); });
        asleep_ = false;
        return !stop_;
    }

    bool wanted() const { return wanted_ && (stepping_ || now_ns() - ended_ns_ < to_ns(GAP)); }

    void measure_window() {
        const uint32_t series = series_, n_breaks = n_breaks_;
        const int64_t  start = now_ns(), start_cpu = pyg::platform::thread_cpu_ns();
        while (now_ns() - start < to_ns(WINDOW)) {
            if (stop_ || !wanted()) {
                return;
            }
        }
        const double passed = static_cast<double>(now_ns() - start);
        const bool   free   = static_cast<double>(pyg::platform::thread_cpu_ns() - start_cpu) >= FREE_SHARE * passed;
        if (wanted() && n_breaks == n_breaks_ && series == series_) {
            const Observation before = observation_of(series);
            publish(series, free ? Observation{before.n_free + 1, before.was_taken} : Observation{0, true});
        }
    }

    Observation observation_of(uint32_t series) const {
        const uint64_t seen = seen_;
        if (seen >> 32 != series) {
            return {};
        }
        return {static_cast<int32_t>(seen & (TAKEN - 1)), (seen & TAKEN) != 0};
    }

    void publish(uint32_t series, Observation observation) {
        seen_ =
            uint64_t{series} << 32 | (observation.was_taken ? TAKEN : 0) | static_cast<uint32_t>(observation.n_free);
    }

    static constexpr uint64_t TAKEN = uint64_t{1} << 31;

    int32_t last_n_threads_ = 0;  // of the engine's thread only

    std::atomic<bool>     wanted_{false};
    std::atomic<bool>     stepping_{false};
    std::atomic<int64_t>  ended_ns_{0};
    std::atomic<uint32_t> n_breaks_{0};  // a window with a gap in it does not count
    std::atomic<uint32_t> series_{0};    // number of the current series of windows
    std::atomic<uint64_t> seen_{0};      // series << 32 | TAKEN | consecutive idle windows: the observation

    std::mutex              mutex_;
    std::condition_variable wake_;
    std::atomic<bool>       asleep_{false};
    std::atomic<bool>       stop_{false};
};

}  // namespace

std::shared_ptr<pyg::IdleCoreProbe> pyg::make_idle_core_probe() {
    const platform::SignalsBlocked signals_go_to_the_callers_threads;
    const auto                     state = std::make_shared<ProbeState>();
    std::thread([state] { state->run(); }).detach();
    return {state.get(), [state](IdleCoreProbe *) { state->stop(); }};
}
