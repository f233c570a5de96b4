// Messages between a process and its engine's process. Both run the same build, so they are plain structs.
//
// To the engine: frames through a socket, each with numbers (a prompt's token ids) and bytes that only Python reads.
// From the engine: events through a ring buffer. The socket carries one byte back whenever the reader of the ring
// buffer sleeps and has something to read. The end of the socket means that the other process has exited.
#pragma once

#include "pyggml.h"

#include <cstdint>

namespace pyg {

struct Frame {
    uint32_t kind;       // enum pyg_frame_kind, or FRAME_CANCEL
    uint32_t n_numbers;  // int32
    uint64_t id;         // of the request or the call
    uint64_t n_bytes;    // after the numbers
};

constexpr uint32_t FRAME_CANCEL = 100;  // of the request `id`

struct Event {
    enum Kind : uint32_t { UPDATE = 1, REPLY = 2 };
    enum Flag : uint32_t { MESSAGE_ENDS = 1, CALL_ENDS = 2 };  // of a REPLY, whose messages are sent in chunks

    uint32_t kind;
    uint32_t flags;
    uint64_t id;       // of the request or the call
    uint64_t n_bytes;  // after the event
};

// Update of a request. Its payload: the tokens, int32; the logprobs of these tokens and of the prompt's next ones, as
// rows of a LogprobTable; and the error, with PYG_FINISH_ERROR.
struct RequestUpdate {
    pyg_request_state state;
    uint32_t          n_tokens;
    uint32_t          n_prompt_rows;
};

constexpr uint32_t UPDATE_TOKENS      = 256;  // at most
constexpr uint32_t UPDATE_PROMPT_ROWS = 256;  // at most
constexpr size_t   REPLY_CHUNK        = size_t{1} << 15;
// Upper limit: the most tokens and rows, each with the most logprobs.
constexpr uint64_t LONGEST_EVENT = uint64_t{8} << 20;

}  // namespace pyg
