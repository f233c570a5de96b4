// What a program and the process of its engine tell each other. Both run the same build, so plain structs will do.
//
// To the engine, through a socket: frames, each with the numbers that are its first part (the ids of a prompt) and
// bytes that only Python reads. From the engine, through a ring: events. The socket carries one byte back whenever the
// ring's reader sleeps and has something to read, and its end is the end of the other side.
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
    enum Flag : uint32_t { MESSAGE_ENDS = 1, CALL_ENDS = 2 };  // of a REPLY, whose messages come in pieces

    uint32_t kind;
    uint32_t flags;
    uint64_t id;       // of the request or the call
    uint64_t n_bytes;  // after the event
};

// What has become of a request. After it come the tokens, int32; the logprobs of these tokens and of the prompt's next
// ones, each as rows of a LogprobTable; and the error, with PYG_FINISH_ERROR.
struct RequestUpdate {
    pyg_request_state state;
    uint32_t          n_tokens;
    uint32_t          n_prompt_rows;
};

constexpr uint32_t UPDATE_TOKENS      = 256;  // at most
constexpr uint32_t UPDATE_PROMPT_ROWS = 256;  // at most
constexpr size_t   REPLY_CHUNK        = size_t{1} << 15;
// No event is longer: the most tokens and rows, each with the most logprobs.
constexpr uint64_t LONGEST_EVENT = uint64_t{8} << 20;

}  // namespace pyg
