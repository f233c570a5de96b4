// Python functions that C calls, defined in Python with `@ffi.def_extern()`.

// pyg_model_options.progress; user_data is ffi.new_handle() of the object in pyggml/_native/model.py that reports.
extern "Python" bool pyg_python_progress(float fraction, void * user_data);
