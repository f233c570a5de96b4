// Shares of work: every group is in exactly one, shares of a round differ by at most one group, the last are small.
#include "kernels/backend/work_shares.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <initializer_list>

namespace {

void test_shares(int64_t n_groups, int64_t n_threads) {
    const pyg::kernels::WorkShares shares(n_groups, n_threads);
    CHECK(shares.size() >= n_threads && shares.size() % n_threads == 0);
    CHECK(shares.begin(0) == 0 && shares.begin(shares.size()) == n_groups);
    int64_t before = n_groups;
    for (int64_t round = 0; round < shares.size(); round += n_threads) {
        int64_t least = n_groups, most = 0;
        for (int64_t i = round; i < round + n_threads; i++) {
            const int64_t size = shares.begin(i + 1) - shares.begin(i);
            least              = std::min(least, size);
            most               = std::max(most, size);
        }
        CHECK(least >= 0 && most - least <= 1);
        CHECK(most <= before);
        before = most;
    }
    if (n_groups >= 4 * n_threads) {
        CHECK(before <= 4);
        CHECK(shares.begin(n_threads) == n_groups - n_groups / 2);
    }
}

}  // namespace

int main() {
    for (const int64_t n_threads : {1, 2, 3, 7, 64, 192}) {
        for (int64_t n_groups = 0; n_groups < 3000; n_groups++) {
            test_shares(n_groups, n_threads);
        }
        test_shares(int64_t{1} << 40, n_threads);
    }
    return 0;
}
