// Snapshots as files: the tier of the prefix cache on disk, which processes share and which outlives them.
//
// A file is written next to its place, synced and renamed, so that it is whole or absent. Its name is made of the
// fingerprint of the context and a hash of the tokens; whatever else the directory holds is left alone. A file that was
// read and is damaged is removed with a warning; one that cannot be read, or is too large for the memory there is, is
// not used. The least recently used are removed when all files together are too large.
#pragma once

#include "engine/scheduling/snapshot_bytes.hpp"
#include "engine/scheduling/snapshot_store.hpp"

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

namespace pyg {

class SnapshotFiles : public SnapshotStore {
  public:
    // `folder` exists. `lock` is released while files are read; callers hold it then.
    SnapshotFiles(const std::string & folder, uint64_t max_bytes, uint64_t fingerprint, std::mutex * lock);
    ~SnapshotFiles() override;  // waits for what is being written

    uint32_t                        longest(const Lookup & lookup) override;
    std::shared_ptr<const Snapshot> load(const Lookup & lookup) override;
    void                            forget(const Snapshot & snapshot) override;
    void                            store(std::shared_ptr<const Snapshot> snapshot) override;

    // From now on, store() waits for the disk instead of leaving out what it is too slow for.
    void wait_for_disk() { waits_ = true; }

    // Files that this context can use, and their bytes.
    size_t   n() const { return entries_.size(); }
    uint64_t n_bytes() const { return n_bytes_; }

  private:
    struct Entry {
        SnapshotHead head;
        uint64_t     size;
        bool         is_usable = true;
    };
    using Entries = std::unordered_map<std::string, Entry>;  // by name

    std::pair<uint32_t, const std::string *> found(const Lookup & lookup) const;
    template <class Saved>
    std::string name_of(const Saved & saved) const;
    void        scan_if_changed();
    void        scan();
    void        add(const std::filesystem::directory_entry & file, Entries & entries);
    void        discard(const std::string & name, const std::string & why);

    void run_writer();
    void write(const Snapshot & snapshot);
    void remove_oldest();
    void remove_abandoned() const;

    const std::filesystem::path     folder_;
    const uint64_t                  max_bytes_;
    const uint64_t                  fingerprint_;
    std::mutex * const              lock_;
    Entries                         entries_;      // of the engine's thread
    uint64_t                        n_bytes_ = 0;  // as of the last scan
    std::filesystem::file_time_type scanned_;      // when the directory was changed before that

    std::mutex                                  mutex_;  // of the queue
    std::condition_variable                     changed_;
    std::deque<std::shared_ptr<const Snapshot>> queue_;  // to be written
    bool                                        closing_ = false;
    bool                                        waits_   = false;  // of the engine's thread
    bool                                        warned_  = false;  // of the writer
    std::thread                                 writer_;           // last member: starts when the others exist
};

}  // namespace pyg
