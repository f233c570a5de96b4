/* Static variables of the engine are never destroyed.
 *
 * Daemon threads go on while a Python process ends, and one that is in a call of ours (rendering a template, splitting a
 * text into tokens) would read tables, patterns and lists that the C library has just had destroyed, which ends the
 * process by a signal in place of its own exit status. There is nothing to be done in those destructors but to give
 * memory back that the system takes anyway. So the linker leads here what compilers make of static variables:
 * the registration of their destructors. */
int __wrap___cxa_atexit(void (*destroy)(void *), void * variable, void * library);

int __wrap___cxa_atexit(void (*destroy)(void *), void * variable, void * library) {
    (void) destroy;
    (void) variable;
    (void) library;
    return 0;
}
