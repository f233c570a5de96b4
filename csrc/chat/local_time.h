// Included before every file of llama-common (see vendor/CMakeLists.txt): upstream tells templates the time with
// std::localtime, whose result is one for the whole process. Templates are rendered on any number of threads, beside
// programs that ask for times of their own.
#pragma once

#ifdef __cplusplus

#    include <ctime>

namespace std {

inline tm * pyg_localtime(const time_t * time) {
    static thread_local tm parts;
    return localtime_r(time, &parts);
}

}  // namespace std

#    define localtime pyg_localtime

#endif
