// Cache of the most recently used values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <string>
#include <utility>

namespace pyg {

// Needs the caller's lock.
template <class Value, size_t MAX_ENTRIES>
class LruCache {
  public:
    // The value with this key. If there is none, `make` creates it, and the least recently used one is dropped.
    template <class Make>
    Value & get(const std::string & key, Make && make) {
        const auto found =
            std::find_if(entries_.begin(), entries_.end(), [&](const auto & entry) { return entry.first == key; });
        if (found != entries_.end()) {
            entries_.splice(entries_.begin(), entries_, found);
        } else {
            entries_.emplace_front(key, make());
        }
        if (entries_.size() > MAX_ENTRIES) {
            entries_.pop_back();
        }
        return entries_.front().second;
    }

    // Drop the least recently used values, but never the last one left, as long as too_many(entries) is true.
    template <class TooMany>
    void drop_while(TooMany && too_many) {
        while (entries_.size() > 1 && too_many(entries_)) {
            entries_.pop_back();
        }
    }

  private:
    std::list<std::pair<std::string, Value>> entries_;  // most recently used first
};

}  // namespace pyg
