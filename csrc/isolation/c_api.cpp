// The handles of both sides, and the pyg_relay_* and pyg_feed_* functions around them.
#include "boundary/handles.hpp"
#include "boundary/owned_string.hpp"
#include "isolation/engine_client.hpp"
#include "isolation/engine_server.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#if defined(__linux__)
#    include <sys/prctl.h>

#    include <csignal>
#endif

struct pyg_relay : pyg::Handle {
    std::shared_ptr<pyg::Relay> relay;

    explicit pyg_relay(std::shared_ptr<pyg::Relay> shared) : Handle(PYG_HANDLE_RELAY), relay(std::move(shared)) {}
    void release() { relay->close(); }
    void leak() { pyg::keep_forever(std::move(relay)); }
};

struct pyg_feed {
    pyg::Feed feed;

    pyg_feed(int memory, int socket) : feed(memory, socket) {}
};

namespace {

// For calls that wait, without the handle's lock.
std::shared_ptr<pyg::Relay> shared(pyg_relay * relay) {
    return pyg::take_turn(relay, [](pyg_relay & handle) { return handle.relay; });
}

}  // namespace

pyg_status pyg_relay_new(uint32_t n_parallel, uint32_t max_queue, int32_t * memory, int32_t * socket, pyg_relay ** out,
                         pyg_error * err) {
    return pyg::guard(
        err, [&] { *out = new pyg_relay(std::make_shared<pyg::Relay>(n_parallel, max_queue, *memory, *socket)); });
}

pyg_status pyg_relay_run(pyg_relay * relay, pyg_error * err) {
    return pyg::guard(err, [&] { shared(relay)->run(); });
}

pyg_status pyg_relay_submit(pyg_relay * relay, pyg_model * model, uint32_t n_ctx, const int32_t * prompt,
                            int32_t n_prompt, const pyg_request_options * options, const char * bytes, size_t n_bytes,
                            pyg_request ** out, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto checks_with = pyg::shared_model(model);
        *out = new pyg_request(shared(relay)->submit(*checks_with, n_ctx, prompt, n_prompt, *options, bytes, n_bytes));
    });
}

pyg_status pyg_relay_ask_for_room(pyg_relay * relay, pyg_waker * waker, uint64_t tag, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto told = pyg::take_turn(waker, [](pyg_waker & handle) { return handle.waker; });
        shared(relay)->ask_for_room(told, tag);
    });
}

pyg_status pyg_relay_call(pyg_relay * relay, const int32_t * numbers, uint32_t n_numbers, const char * bytes,
                          size_t n_bytes, size_t max_bytes, uint64_t * id, pyg_error * err) {
    return pyg::guard(err, [&] { *id = shared(relay)->call(numbers, n_numbers, bytes, n_bytes, max_bytes); });
}

pyg_status pyg_relay_reply(pyg_relay * relay, uint64_t id, double timeout_s, char ** data, size_t * n_bytes,
                           bool * last, pyg_error * err) {
    return pyg::guard(err, [&] {
        *data = nullptr;
        if (const auto message = shared(relay)->reply(id, timeout_s, *last)) {
            *data    = pyg::owned_copy(*message);
            *n_bytes = message->size();
        }
    });
}

void pyg_relay_forget(pyg_relay * relay, uint64_t id) {
    pyg_error ignored;
    (void) pyg::guard(&ignored, [&] { shared(relay)->forget(id); });
}

pyg_status pyg_relay_is_gone(pyg_relay * relay, bool * out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = shared(relay)->is_gone(); });
}

pyg_status pyg_relay_lose(pyg_relay * relay, const char * why, pyg_error * err) {
    return pyg::guard(err, [&] {
        pyg_error lost;
        pyg::report(&lost, PYG_ERR_ENGINE, why);  // without memory of its own
        shared(relay)->lose(lost);
    });
}

pyg_status pyg_relay_close(pyg_relay * relay, pyg_error * err) { return pyg::close(relay, err); }

void pyg_relay_free(pyg_relay * relay) { pyg::free_handle(relay); }

pyg_status pyg_feed_new(int32_t memory, int32_t socket, pyg_feed ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_feed(memory, socket); });
}

void pyg_feed_run(pyg_feed * feed) { feed->feed.run(); }

pyg_status pyg_feed_next(pyg_feed * feed, pyg_frame * out, pyg_error * err) {
    return pyg::guard(err, [&] {
        pyg::Frame  frame = {};
        std::string bytes;
        *out = {};
        if (feed->feed.next(frame, bytes)) {
            *out = {static_cast<int32_t>(frame.kind), frame.n_numbers, frame.id, pyg::owned_copy(bytes), frame.n_bytes};
        }
    });
}

pyg_status pyg_feed_submit(pyg_feed * feed, pyg_engine * engine, uint64_t id, const int32_t * prompt, int32_t n_prompt,
                           const pyg_request_options * options, pyg_error * err) {
    return pyg::guard(err, [&] { feed->feed.submit(engine, id, prompt, n_prompt, *options); });
}

pyg_status pyg_feed_reply(pyg_feed * feed, uint64_t id, const char * data, size_t n_bytes, bool last, pyg_error * err) {
    return pyg::guard(err, [&] { feed->feed.reply(id, data, n_bytes, last); });
}

void pyg_end_with_parent(int32_t parent) {
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) {
        _exit(1);  // it ended before we could ask
    }
}
