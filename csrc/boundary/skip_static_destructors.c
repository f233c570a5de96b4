/* Skips the destructors of the engine's static variables.
 *
 * Daemon threads keep running while a Python process exits, and one inside a call (rendering a template, tokenizing)
 * would read tables and lists that are already destroyed, and crash the process instead of letting it return its exit
 * status. Those destructors only free memory, which the system does anyway. So the linker redirects the registration of
 * static destructors to this function. */
int __wrap___cxa_atexit(void (*destroy)(void *), void * variable, void * library);

int __wrap___cxa_atexit(void (*destroy)(void *), void * variable, void * library) {
    (void) destroy;
    (void) variable;
    (void) library;
    return 0;
}
