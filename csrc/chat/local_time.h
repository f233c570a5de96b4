// Included before every file of llama-common (see vendor/CMakeLists.txt): upstream gives templates the time from
// std::localtime, which returns a static buffer. Templates are rendered on any number of threads.
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
