// Handles of both sides, and the pyg_engine_client_* and pyg_engine_server_* functions.
#include "boundary/handles.hpp"
#include "isolation/engine_client.hpp"
#include "isolation/engine_server.hpp"
#include "platform/platform.hpp"

#include <cstring>

struct pyg_engine_client : pyg::PointerHandle<std::shared_ptr<pyg::EngineClient>, PYG_HANDLE_ENGINE_CLIENT> {
    using PointerHandle::PointerHandle;
    void release() { object->close(); }
};

struct pyg_engine_server {
    pyg::EngineServer server;

    pyg_engine_server(int memory, int socket) : server(memory, socket) {}
};

using pyg::shared_object;

pyg_status pyg_engine_client_new(uint32_t n_parallel, uint32_t max_queue, int32_t * memory, int32_t * socket,
                                 pyg_engine_client ** out, pyg_error * err) {
    return pyg::guard(err, [&] {
        *out = new pyg_engine_client(std::make_shared<pyg::EngineClient>(n_parallel, max_queue, *memory, *socket));
    });
}

pyg_status pyg_engine_client_run(pyg_engine_client * client, pyg_error * err) {
    return pyg::guard(err, [&] { shared_object(client)->run(); });
}

pyg_status pyg_engine_client_submit(pyg_engine_client * client, pyg_model * model, uint32_t n_ctx,
                                    const int32_t * prompt, int32_t n_prompt, const pyg_request_options * options,
                                    const char * bytes, size_t n_bytes, pyg_request ** out, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto checks_with = shared_object(model);
        *out                   = new pyg_request(
            shared_object(client)->submit(*checks_with, n_ctx, prompt, n_prompt, *options, bytes, n_bytes));
    });
}

pyg_status pyg_engine_client_notify_when_queue_has_capacity(pyg_engine_client * client, pyg_waker * waker, uint64_t tag,
                                                            pyg_error * err) {
    return pyg::guard(err, [&] { shared_object(client)->notify_when_queue_has_capacity(shared_object(waker), tag); });
}

pyg_status pyg_engine_client_call(pyg_engine_client * client, const int32_t * numbers, uint32_t n_numbers,
                                  const char * bytes, size_t n_bytes, size_t max_bytes, uint64_t * id,
                                  pyg_error * err) {
    return pyg::guard(err, [&] { *id = shared_object(client)->call(numbers, n_numbers, bytes, n_bytes, max_bytes); });
}

pyg_status pyg_engine_client_reply(pyg_engine_client * client, uint64_t id, double timeout_s, char ** data,
                                   size_t * n_bytes, bool * last, pyg_error * err) {
    return pyg::guard(err, [&] {
        *data = nullptr;
        if (const auto message = shared_object(client)->reply(id, timeout_s, *last)) {
            *data    = pyg::owned_copy(*message);
            *n_bytes = message->size();
        }
    });
}

void pyg_engine_client_discard(pyg_engine_client * client, uint64_t id) {
    pyg_error ignored;
    (void) pyg::guard(&ignored, [&] { shared_object(client)->discard(id); });
}

pyg_status pyg_engine_client_has_exited(pyg_engine_client * client, bool * out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = shared_object(client)->has_exited(); });
}

pyg_status pyg_engine_client_fail(pyg_engine_client * client, const char * why, pyg_error * err) {
    return pyg::guard(err, [&] {
        pyg_error lost;
        pyg::report(&lost, PYG_ERR_ENGINE, why);  // allocates nothing
        shared_object(client)->fail_all(lost);
    });
}

pyg_status pyg_engine_client_close(pyg_engine_client * client, pyg_error * err) { return pyg::close(client, err); }
void       pyg_engine_client_free(pyg_engine_client * client) { pyg::free_handle(client); }

pyg_status pyg_engine_server_new(int32_t memory, int32_t socket, pyg_engine_server ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_engine_server(memory, socket); });
}

void pyg_engine_server_run(pyg_engine_server * server) { server->server.run(); }

pyg_status pyg_engine_server_next(pyg_engine_server * server, pyg_frame * out, pyg_error * err) {
    return pyg::guard(err, [&] {
        pyg::Frame  frame = {};
        std::string bytes;
        *out = {};
        if (server->server.next(frame, bytes)) {
            *out = {static_cast<int32_t>(frame.kind), frame.n_numbers, frame.id, pyg::owned_copy(bytes), frame.n_bytes};
        }
    });
}

pyg_status pyg_engine_server_submit(pyg_engine_server * server, pyg_engine * engine, uint64_t id,
                                    const int32_t * prompt, int32_t n_prompt, const pyg_request_options * options,
                                    pyg_error * err) {
    return pyg::guard(err, [&] { server->server.submit(engine, id, prompt, n_prompt, *options); });
}

pyg_status pyg_engine_server_refuse(pyg_engine_server * server, uint64_t id, int32_t code, const char * why,
                                    pyg_error * err) {
    return pyg::guard(err, [&] {
        pyg_error error;
        pyg::report(&error, static_cast<pyg_code>(code), why);
        server->server.refuse(id, error);
    });
}

pyg_status pyg_engine_server_reply(pyg_engine_server * server, uint64_t id, const char * data, size_t n_bytes,
                                   bool last, pyg_error * err) {
    return pyg::guard(err, [&] { server->server.reply(id, data, n_bytes, last); });
}

void pyg_end_with_parent(int32_t parent) { pyg::platform::end_with_parent(parent); }
