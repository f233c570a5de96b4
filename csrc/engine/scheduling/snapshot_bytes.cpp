#include "engine/scheduling/snapshot_bytes.hpp"

#include "context/fingerprint.hpp"

#include <cstddef>
#include <cstring>
#include <utility>

namespace pyg {

namespace {

// In native byte order: the bytes are for this machine. After the header: the tokens, the lengths and sizes of the
// checkpoints, the state, and the checkpoints' states.
struct SnapshotHeader {
    char     magic[8];
    uint64_t checksum;  // of everything after it
    uint64_t size;      // in total
    uint64_t fingerprint;
    uint64_t cache_salt;
    uint64_t is_divided;
    uint64_t n_tokens;
    uint64_t n_checkpoints;
    uint64_t state_size;
};

struct CheckpointHeader {
    uint64_t n;
    uint64_t size;
};

constexpr char   SNAPSHOT_MAGIC[8] = {'p', 'y', 'g', 's', 'n', 'a', 'p', '1'};
constexpr size_t CHECKED_FROM      = offsetof(SnapshotHeader, size);

size_t encoded_size(const Snapshot & snapshot) {
    return sizeof(SnapshotHeader) + snapshot.checkpoints.size() * sizeof(CheckpointHeader) + snapshot.n_bytes();
}

class Writer {
  public:
    explicit Writer(uint8_t * to) : to_(to) {}

    void write(const void * data, size_t size) {
        std::memcpy(to_, data, size);
        to_ += size;
    }

  private:
    uint8_t * to_;
};

// Reads what the header has announced. The checksum was right, so lengths are wrong only if someone made them so.
class Reader {
  public:
    Reader(const uint8_t * from, size_t size) : from_(from), n_left_(size) {}

    void read(void * data, uint64_t size) {
        if (size > n_left_) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the saved prefix is damaged: its lengths contradict each other");
        }
        std::memcpy(data, from_, size);
        from_ += size;
        n_left_ -= size;
    }

    // Refuse a length before so much is allocated.
    void require(uint64_t n, uint64_t size) const {
        if (n > n_left_ / size) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the saved prefix is damaged: its lengths contradict each other");
        }
    }

    std::shared_ptr<const StateBytes> read_state(uint64_t size) {
        require(size, 1);
        StateBytes state(size);
        read(state.data(), size);
        return std::make_shared<const StateBytes>(std::move(state));
    }

  private:
    const uint8_t * from_;
    size_t          n_left_;
};

// Return the header of `size` bytes, of which at least the header is there.
SnapshotHeader header_of(const uint8_t * data, uint64_t size) {
    SnapshotHeader header;
    if (size < sizeof(header)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%llu bytes are too few for a saved prefix",
                   static_cast<unsigned long long>(size));
    }
    std::memcpy(&header, data, sizeof(header));
    if (std::memcmp(header.magic, SNAPSHOT_MAGIC, sizeof(SNAPSHOT_MAGIC)) != 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "these bytes are not a prefix saved by this version of pyggml");
    }
    if (header.size != size) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "the saved prefix is damaged or incomplete: %llu bytes were given, %llu were saved",
                   static_cast<unsigned long long>(size), static_cast<unsigned long long>(header.size));
    }
    return header;
}

void require_fingerprint(const SnapshotHeader & header, uint64_t fingerprint) {
    if (header.fingerprint != fingerprint) {
        throw fail(
            PYG_ERR_INVALID_PARAMETER,
            "the prefix was saved with another model, other load options (types of the KV cache, RoPE, devices), "
            "or another build of pyggml: compute it again");
    }
}

// Read what is between the header and the states.
SnapshotHead read_head(Reader & reader, const SnapshotHeader & header, std::vector<CheckpointHeader> & checkpoints) {
    SnapshotHead head;
    head.cache_salt = header.cache_salt;
    head.is_divided = header.is_divided != 0;
    reader.require(header.n_tokens, sizeof(int32_t));
    head.tokens.resize(header.n_tokens);
    reader.read(head.tokens.data(), header.n_tokens * sizeof(int32_t));
    reader.require(header.n_checkpoints, sizeof(CheckpointHeader));
    checkpoints.resize(header.n_checkpoints);
    reader.read(checkpoints.data(), header.n_checkpoints * sizeof(CheckpointHeader));
    for (const CheckpointHeader & checkpoint : checkpoints) {
        const uint32_t shortest = head.checkpoint_at.empty() ? 1 : head.checkpoint_at.back() + 1;
        if (checkpoint.n < shortest || checkpoint.n > header.n_tokens) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the saved prefix is damaged: a checkpoint has %llu of %llu tokens",
                       static_cast<unsigned long long>(checkpoint.n), static_cast<unsigned long long>(header.n_tokens));
        }
        head.checkpoint_at.push_back(static_cast<uint32_t>(checkpoint.n));
    }
    return head;
}

}  // namespace

StateBytes encode(const Snapshot & snapshot, uint64_t fingerprint) {
    StateBytes     bytes(encoded_size(snapshot));
    SnapshotHeader header = {};
    std::memcpy(header.magic, SNAPSHOT_MAGIC, sizeof(SNAPSHOT_MAGIC));
    header.size          = bytes.size();
    header.fingerprint   = fingerprint;
    header.cache_salt    = snapshot.cache_salt;
    header.is_divided    = snapshot.is_divided;
    header.n_tokens      = snapshot.tokens.size();
    header.n_checkpoints = snapshot.checkpoints.size();
    header.state_size    = snapshot.state.size();

    Writer writer(bytes.data());
    writer.write(&header, sizeof(header));
    writer.write(snapshot.tokens.data(), snapshot.tokens.size() * sizeof(int32_t));
    for (const Checkpoint & checkpoint : snapshot.checkpoints) {
        const CheckpointHeader head = {checkpoint.n, checkpoint.state->size()};
        writer.write(&head, sizeof(head));
    }
    writer.write(snapshot.state.data(), snapshot.state.size());
    for (const Checkpoint & checkpoint : snapshot.checkpoints) {
        writer.write(checkpoint.state->data(), checkpoint.state->size());
    }
    header.checksum = checksum(bytes.data() + CHECKED_FROM, bytes.size() - CHECKED_FROM);
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
}

SnapshotHead read_head(const std::function<StateBytes(uint64_t n)> & read, uint64_t size, uint64_t fingerprint) {
    const StateBytes     first  = read(sizeof(SnapshotHeader));
    const SnapshotHeader header = header_of(first.data(), first.size() < sizeof(SnapshotHeader) ? first.size() : size);
    require_fingerprint(header, fingerprint);
    // Multiplied only after they are known to fit.
    if (header.n_tokens > size / sizeof(int32_t) || header.n_checkpoints > size / sizeof(CheckpointHeader)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the saved prefix is damaged: its lengths contradict each other");
    }
    const StateBytes bytes = read(sizeof(SnapshotHeader) + header.n_tokens * sizeof(int32_t) +
                                  header.n_checkpoints * sizeof(CheckpointHeader));
    if (bytes.size() < sizeof(SnapshotHeader)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the saved prefix became shorter");
    }
    Reader                        reader(bytes.data() + sizeof(SnapshotHeader), bytes.size() - sizeof(SnapshotHeader));
    std::vector<CheckpointHeader> checkpoints;
    return read_head(reader, header, checkpoints);
}

std::shared_ptr<Snapshot> decode(const void * data, size_t size, uint64_t fingerprint) {
    const auto *         bytes  = static_cast<const uint8_t *>(data);
    const SnapshotHeader header = header_of(bytes, size);
    if (header.checksum != checksum(bytes + CHECKED_FROM, size - CHECKED_FROM)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the saved prefix is damaged or incomplete: its checksum is wrong");
    }
    require_fingerprint(header, fingerprint);
    Reader                        reader(bytes + sizeof(header), size - sizeof(header));
    std::vector<CheckpointHeader> checkpoints;
    SnapshotHead                  head     = read_head(reader, header, checkpoints);
    auto                          snapshot = std::make_shared<Snapshot>();
    snapshot->cache_salt                   = head.cache_salt;
    snapshot->is_divided                   = head.is_divided;
    snapshot->tokens                       = std::move(head.tokens);
    reader.require(header.state_size, 1);
    snapshot->state = StateBytes(header.state_size);
    reader.read(snapshot->state.data(), header.state_size);
    for (const CheckpointHeader & checkpoint : checkpoints) {
        snapshot->checkpoints.push_back({static_cast<uint32_t>(checkpoint.n), reader.read_state(checkpoint.size), 0});
    }
    return snapshot;
}

}  // namespace pyg
