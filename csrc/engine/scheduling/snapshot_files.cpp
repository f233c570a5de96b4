#include "engine/scheduling/snapshot_files.hpp"

#include "boundary/log.hpp"
#include "boundary/machine_limits.hpp"
#include "context/fingerprint.hpp"
#include "engine/scheduling/released_lock.hpp"
#include "engine/scheduling/snapshot_bytes.hpp"
#include "platform/platform.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <new>
#include <optional>
#include <random>
#include <utility>

namespace pyg {

namespace {

namespace fs = std::filesystem;

constexpr const char * SUFFIX           = ".pygprefix";
constexpr const char * ABANDONED_SUFFIX = ".pygprefix-part";

// A file that is not finished after so long belongs to a process that has ended.
constexpr auto ABANDONED_AFTER = std::chrono::minutes(10);

// Changes of a directory within so short a time may have the same time stamp.
constexpr auto CLOCK_STEP = std::chrono::seconds(1);

// Most snapshots that wait to be written: each holds its memory meanwhile.
constexpr size_t MAX_QUEUE = 8;

bool ends_with(const std::string & text, const char * end) {
    const size_t n = std::strlen(end);
    return text.size() >= n && text.compare(text.size() - n, n, end) == 0;
}

void warn(const std::string & text) { on_engine_log(GGML_LOG_LEVEL_WARN, (text + "\n").c_str(), nullptr); }

std::string hex(uint64_t number) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016" PRIx64, number);
    return text;
}

// Differs between processes.
uint64_t unique_number() {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
}

// A file whose bytes are not known to be wrong: it may be readable later, or for others.
struct Unreadable {};

// Larger files are compared with the memory that is available: their pages could be allocated, but not be filled.
constexpr uint64_t LARGE = uint64_t{16} << 20;

// Read a file, at most so many bytes. Throws Unreadable, and std::bad_alloc if there is too little memory for it and
// for a decoded copy.
StateBytes bytes_of(const fs::path & path, uint64_t limit) {
    std::error_code error;
    const uint64_t  size = std::min<uint64_t>(fs::file_size(path, error), limit);
    std::ifstream   file(path, std::ios::binary);
    if (error || !file) {
        throw Unreadable();
    }
    if (size > LARGE && size > memory_available() / 2) {
        throw std::bad_alloc();
    }
    StateBytes bytes(size);
    file.read(reinterpret_cast<char *>(bytes.data()), static_cast<std::streamsize>(size));
    if (static_cast<uint64_t>(file.gcount()) != size) {
        throw Unreadable();
    }
    return bytes;
}

}  // namespace

SnapshotFiles::SnapshotFiles(const std::string & folder, uint64_t max_bytes, uint64_t fingerprint, std::mutex * lock)
    : folder_(fs::u8path(folder)), max_bytes_(max_bytes), fingerprint_(fingerprint), lock_(lock) {
    remove_abandoned();
    scan();
    const platform::SignalsBlocked signals_go_to_the_callers_threads;
    writer_ = std::thread([this] { run_writer(); });
}

SnapshotFiles::~SnapshotFiles() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    writer_.join();
}

// Return the name of a snapshot's file, or of one whose head is known.
template <class Saved>
std::string SnapshotFiles::name_of(const Saved & saved) const {
    const uint64_t other[] = {saved.cache_salt, saved.is_divided};
    const uint64_t hash =
        checksum(saved.tokens.data(), saved.tokens.size() * sizeof(saved.tokens[0]), checksum(other, sizeof(other)));
    return hex(fingerprint_) + "-" + hex(hash) + SUFFIX;
}

// --- the engine's thread ---

std::pair<uint32_t, const std::string *> SnapshotFiles::found(const Lookup & lookup) const {
    std::pair<uint32_t, const std::string *> best = {0, nullptr};
    for (const auto & [name, entry] : entries_) {
        if (!entry.is_usable || entry.head.cache_salt != lookup.cache_salt ||
            entry.head.is_divided != lookup.is_divided) {
            continue;
        }
        const uint32_t n = usable_tokens(entry.head.tokens, entry.head.checkpoint_at, lookup);
        if (n > best.first) {
            best = {n, &name};
        }
    }
    return best;
}

uint32_t SnapshotFiles::longest(const Lookup & lookup) {
    scan_if_changed();
    return found(lookup).first;
}

std::shared_ptr<const Snapshot> SnapshotFiles::load(const Lookup & lookup) {
    const std::string * const name = found(lookup).second;
    if (!name) {
        return nullptr;
    }
    std::shared_ptr<Snapshot>  snapshot;
    std::optional<std::string> damage;
    bool                       is_too_large = false;
    {
        const ReleasedLock released(lock_);  // entries_ are of this thread
        try {
            const StateBytes bytes = bytes_of(folder_ / *name, UINT64_MAX);
            snapshot               = decode(bytes.data(), bytes.size(), fingerprint_);
            if (name_of(*snapshot) != *name) {
                throw fail(PYG_ERR_ENGINE, "its tokens are not those of its name");
            }
            std::error_code ignored;
            fs::last_write_time(folder_ / *name, fs::file_time_type::clock::now(), ignored);  // it is used
            return snapshot;
        } catch (const Failure & failure) {
            damage = failure.message;
        } catch (const Unreadable &) {  // the next scan finds it again
        } catch (const std::bad_alloc &) {
            is_too_large = true;
        }
    }
    const auto entry = entries_.find(*name);
    if (damage) {
        discard(std::string(*name), *damage);
    } else if (is_too_large) {
        entry->second.is_usable = false;
    } else {
        entries_.erase(entry);
    }
    return nullptr;
}

void SnapshotFiles::forget(const Snapshot & snapshot) {
    if (const auto entry = entries_.find(name_of(snapshot)); entry != entries_.end()) {
        entry->second.is_usable = false;
    }
}

void SnapshotFiles::store(std::shared_ptr<const Snapshot> snapshot) {
    if (entries_.count(name_of(*snapshot)) || snapshot->n_bytes() > max_bytes_) {
        return;
    }
    if (waits_) {
        const ReleasedLock           released(lock_);
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return queue_.size() < MAX_QUEUE; });  // only this thread adds to it
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (queue_.size() >= MAX_QUEUE) {
            return;  // the disk is slower than the engine
        }
        queue_.push_back(std::move(snapshot));
    }
    changed_.notify_all();
}

void SnapshotFiles::scan_if_changed() {
    std::error_code          error;
    const fs::file_time_type changed = fs::last_write_time(folder_, error);
    if (!error && (changed != scanned_ || fs::file_time_type::clock::now() - changed < CLOCK_STEP)) {
        const ReleasedLock released(lock_);
        scan();
    }
}

void SnapshotFiles::scan() {
    std::error_code error;
    scanned_ = fs::last_write_time(folder_, error);
    Entries entries;
    try {
        for (fs::directory_iterator file(folder_, error), end; !error && file != end; file.increment(error)) {
            add(*file, entries);
        }
        if (error) {
            entries.merge(entries_);
        }
    } catch (const std::bad_alloc &) {  // the others are found when the directory has changed again
    }
    entries_ = std::move(entries);
    n_bytes_ = 0;
    for (const auto & [name, entry] : entries_) {
        n_bytes_ += entry.size;
    }
}

// Add a file of this context, reading only its head unless it is known.
void SnapshotFiles::add(const fs::directory_entry & file, Entries & entries) {
    const std::string name = file.path().filename().u8string();
    if (name.compare(0, 16, hex(fingerprint_)) != 0 || !ends_with(name, SUFFIX)) {
        return;
    }
    if (const auto known = entries_.find(name); known != entries_.end()) {
        entries.insert(entries_.extract(known));
        return;
    }
    std::error_code error;
    const uint64_t  size = fs::file_size(file.path(), error);
    if (error) {
        return;  // removed meanwhile
    }
    try {
        SnapshotHead head = read_head([&](uint64_t n) { return bytes_of(file.path(), n); }, size, fingerprint_);
        if (name_of(head) != name) {
            throw fail(PYG_ERR_ENGINE, "its tokens are not those of its name");
        }
        entries[name] = {std::move(head), size};
    } catch (const Failure & failure) {
        discard(name, failure.message);
    } catch (const Unreadable &) {
    } catch (const std::bad_alloc &) {  // no memory for its tokens
    }
}

// Remove a file whose bytes are wrong.
void SnapshotFiles::discard(const std::string & name, const std::string & why) {
    entries_.erase(name);
    std::error_code error;
    if (fs::remove(folder_ / name, error)) {
        warn("the prefix cache removed " + (folder_ / name).u8string() + ": " + why);
    }
}

// --- the writer's thread ---

void SnapshotFiles::run_writer() {
    platform::name_this_thread("pyggml-prefixes");
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
        if (queue_.empty()) {
            return;
        }
        const auto snapshot = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        changed_.notify_all();
        pyg_error error;
        guard(&error, [&] { write(*snapshot); });  // without memory there is no file
        lock.lock();
    }
}

void SnapshotFiles::write(const Snapshot & snapshot) {
    const fs::path  target = folder_ / name_of(snapshot);
    std::error_code error;
    if (fs::exists(target, error)) {
        return;
    }
    const StateBytes bytes = encode(snapshot, fingerprint_);
    const fs::path   part  = folder_ / (hex(unique_number()) + ABANDONED_SUFFIX);
    bool             done  = platform::write_new_file(part.u8string().c_str(), bytes.data(), bytes.size());
    std::string      why   = done ? "" : std::strerror(errno);
    if (done) {
        fs::rename(part, target, error);
        done = !error;
        why  = error.message();
    }
    if (done) {
        platform::sync_folder(folder_.u8string().c_str());
        remove_oldest();
    } else {
        fs::remove(part, error);
        if (!std::exchange(warned_, true)) {
            warn("the prefix cache cannot write to " + folder_.u8string() + ": " + why);
        }
    }
}

// Files of all contexts count.
void SnapshotFiles::remove_oldest() {
    struct File {
        fs::path           path;
        fs::file_time_type used;
        uint64_t           size;
    };
    std::vector<File> files;
    uint64_t          total = 0;
    std::error_code   error;
    for (fs::directory_iterator file(folder_, error), end; !error && file != end; file.increment(error)) {
        std::error_code gone;
        if (ends_with(file->path().filename().u8string(), SUFFIX)) {
            const fs::file_time_type used = file->last_write_time(gone);
            const uint64_t           size = gone ? 0 : file->file_size(gone);
            if (!gone) {
                files.push_back({file->path(), used, size});
                total += size;
            }
        }
    }
    std::sort(files.begin(), files.end(), [](const File & a, const File & b) { return a.used < b.used; });
    for (auto file = files.begin(); total > max_bytes_ && file != files.end(); ++file) {
        std::error_code ignored;
        fs::remove(file->path, ignored);
        total -= file->size;
    }
}

void SnapshotFiles::remove_abandoned() const {
    const auto      now = fs::file_time_type::clock::now();
    std::error_code error;
    for (fs::directory_iterator file(folder_, error), end; !error && file != end; file.increment(error)) {
        std::error_code ignored;
        if (ends_with(file->path().filename().u8string(), ABANDONED_SUFFIX) &&
            now - file->last_write_time(ignored) > ABANDONED_AFTER) {
            fs::remove(file->path(), ignored);
        }
    }
}

}  // namespace pyg
