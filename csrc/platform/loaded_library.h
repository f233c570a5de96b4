/* Symbols of a loaded library, for C and C++. */
#ifndef PYGGML_LOADED_LIBRARY_H
#define PYGGML_LOADED_LIBRARY_H

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the address of `name` in the loaded library that contains the address `inside`; NULL if there is none. Then
 * *library is its path, or NULL if no library contains the address; it stays valid while the library is loaded. */
void * pyg_symbol_of_library_at(const void * inside, const char * name, const char ** library);

#ifdef __cplusplus
}
#endif

#endif
