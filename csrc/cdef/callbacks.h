// Python functions that C calls, defined in Python with `@ffi.def_extern()`.

// pyg_model_options.progress; user_data is ffi.new_handle() of the object in pyggml/_native/model.py that reports.
extern "Python" bool pyg_python_progress(float fraction, void * user_data);

// pyg_request_options.logits_callback: runs the functions in pyggml/generation/logits_processing.py.
extern "Python" void pyg_python_process_logits(pyg_logits_row * rows, int32_t n_rows);
