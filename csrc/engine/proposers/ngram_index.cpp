#include "engine/proposers/ngram_index.hpp"

#include <algorithm>
#include <utility>

namespace {

// Lengths of the indexed n-grams. A single token says too little about the next one.
constexpr uint32_t LENGTHS[] = {8, 4, 2};  // longest first

constexpr size_t MIN_ENTRIES = 256;

uint32_t hash_of(const int32_t * tokens, uint32_t n) {
    uint64_t hash = n * 0xd6e8feb86659fd93u;  // far from what small ids add up to
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash + static_cast<uint32_t>(tokens[i])) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return static_cast<uint32_t>(hash >> 32);
}

// Number of equal tokens at the end of `tail`, and of `tokens` before `end`.
uint32_t common_suffix(const std::vector<int32_t> & tokens, size_t end, const std::vector<int32_t> & tail,
                       uint32_t n_max) {
    uint32_t n = 0;
    while (n < n_max && n < std::min(end, tail.size()) && tokens[end - n - 1] == tail[tail.size() - n - 1]) {
        n++;
    }
    return n;
}

}  // namespace

namespace pyg {

void NgramIndex::extend(const std::vector<int32_t> & tokens) {
    for (; n_indexed_ < tokens.size(); n_indexed_++) {
        for (const uint32_t length : LENGTHS) {
            if (n_indexed_ < length) {
                continue;
            }
            if (2 * (n_used_ + 1) > entries_.size()) {
                grow();
            }
            const uint32_t hash  = hash_of(&tokens[n_indexed_ - length], length);
            Entry &        entry = entry_of(hash);
            n_used_ += entry.next == 0;
            entry = {hash, static_cast<uint32_t>(n_indexed_)};
        }
    }
}

NgramIndex::Match NgramIndex::find(const std::vector<int32_t> & tokens, const std::vector<int32_t> & tail) const {
    for (const uint32_t length : LENGTHS) {
        if (entries_.empty() || tail.size() < length) {
            continue;
        }
        const uint32_t next   = entry_of(hash_of(&tail[tail.size() - length], length)).next;
        const uint32_t common = common_suffix(tokens, next, tail, MAX_LENGTH);
        if (common >= length) {  // not another n-gram with the same hash
            return {next, common};
        }
    }
    return {};
}

// The entry with this hash, or the empty one where it belongs.
NgramIndex::Entry & NgramIndex::entry_of(uint32_t hash) {
    const size_t mask = entries_.size() - 1;
    size_t       i    = hash & mask;
    while (entries_[i].next != 0 && entries_[i].hash != hash) {
        i = (i + 1) & mask;
    }
    return entries_[i];
}

void NgramIndex::grow() {
    std::vector<Entry> before(std::max(MIN_ENTRIES, 2 * entries_.size()));
    std::swap(before, entries_);
    for (const Entry & entry : before) {
        if (entry.next != 0) {
            entry_of(entry.hash) = entry;
        }
    }
}

}  // namespace pyg
