#include "engine/speculation/column_costs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace {

// Share of the duration of a single column that each further one adds, until it has been measured.
constexpr double PRIOR_SHARE = 0.05;

// The least that it may be: an error of the comparisons would else make columns free.
constexpr double LEAST_SHARE = 0.01;

constexpr double LEAST_RATE = 0.05;   // of learning, after many comparisons
constexpr double LARGEST    = 0.5;    // error: a single slow step is an outlier
constexpr double FORGET     = 0.001;  // of what was learned, in each step: a disturbance must not last for ever
constexpr double NEARBY     = 0.5;    // of a change, what holds for one column more or less that was not measured
constexpr int    N_NEARBY   = 4;

double prior_log_ratio(uint32_t n_columns) { return std::log1p(PRIOR_SHARE * (n_columns - 1.0)); }

}  // namespace

namespace pyg {

ColumnCosts::ColumnCosts() : log_ratios_{} {
    for (uint32_t n = 1; n <= N; n++) {
        log_ratios_[n] = prior_log_ratio(n);
    }
}

void ColumnCosts::measured(uint32_t n_columns, double seconds) {
    if (n_columns == 0 || n_columns > N || !(seconds > 0)) {
        return;
    }
    for (uint32_t n = 2; n <= N; n++) {
        log_ratios_[n] += FORGET * (prior_log_ratio(n) - log_ratios_[n]);
    }
    const double log_seconds = std::log(seconds);
    if (n_columns == last_) {
        last_log_seconds_ += (log_seconds - last_log_seconds_) / 2;
        return;
    }
    if (last_ != 0) {
        const double ratio  = log_ratios_[n_columns] - log_ratios_[last_];
        const double error  = std::clamp(log_seconds - last_log_seconds_ - ratio, -LARGEST, LARGEST);
        const double doubts = doubt(n_columns) + doubt(last_);
        const double change = std::clamp(doubts, LEAST_RATE, 1.0) * error;
        move(n_columns, change * doubt(n_columns) / doubts);
        move(last_, -change * doubt(last_) / doubts);
    }
    last_             = n_columns;
    last_log_seconds_ = log_seconds;
}

// Which of two numbers of columns an error is more likely to be about. A single one is the measure of the others.
double ColumnCosts::doubt(uint32_t n_columns) const {
    return n_columns == 1 ? 0 : 1.0 / (n_compared_[n_columns] + 1.0);
}

void ColumnCosts::move(uint32_t n_columns, double change) {
    n_compared_[n_columns]++;
    for (uint32_t n = 2; n <= N; n++) {
        const int distance = std::abs(static_cast<int>(n) - static_cast<int>(n_columns));
        if (distance == 0 || (distance <= N_NEARBY && n_compared_[n] == 0)) {
            log_ratios_[n] =
                std::max(log_ratios_[n] + std::pow(NEARBY, distance) * change, std::log1p(LEAST_SHARE * (n - 1.0)));
        }
    }
}

double ColumnCosts::of(uint32_t n_columns) const {
    const uint32_t n = std::min(n_columns, N);
    return std::exp(log_ratios_[n]) * n_columns / n;
}

double ColumnCosts::seconds_of_one() const { return last_ == 0 ? 0 : std::exp(last_log_seconds_ - log_ratios_[last_]); }

}  // namespace pyg
