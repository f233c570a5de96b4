// Duration of decode steps by their number of columns (tokens), measured from the engine's own steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pyg {

// Knows ratios only, from steps that follow each other: the duration itself changes with the length of the contexts and
// with what else the machine does.
class ColumnCosts {
  public:
    ColumnCosts();

    // Record the duration of a step that only decoded.
    void measured(uint32_t n_columns, double seconds);

    // Duration of a step, as a multiple of that of a single column.
    double of(uint32_t n_columns) const;

    // Duration of a step of a single column, lately; 0: nothing has been measured.
    double seconds_of_one() const;

  private:
    static constexpr uint32_t N = 64;  // more columns take proportionally longer

    double doubt(uint32_t n_columns) const;
    void   move(uint32_t n_columns, double change);

    // By number of columns: logarithms of the ratios, and how often each was compared with another.
    std::array<double, N + 1>   log_ratios_;
    std::array<uint32_t, N + 1> n_compared_       = {};
    uint32_t                    last_             = 0;  // columns of the last step; 0: there was none
    double                      last_log_seconds_ = 0;  // of such steps, lately
};

}  // namespace pyg
