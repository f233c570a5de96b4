# The CUDA toolkit: the system's, or Python packages, or a combination of both.
#
# Upstream does the rest (find_package(CUDAToolkit), the language, the architectures). This file decides which
# toolkit it finds, and where libggml-cuda.so looks for its libraries at run time.

# Neither build nor load depends on the driver's library, so that the module can report what is missing; only virtual
# memory management would call it. NCCL would be one more library.
engine_option(GGML_CUDA_NO_VMM ON)
engine_option(GGML_CUDA_NCCL OFF)

set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)

# Set `variable` to the path of a file such as lib/libcublas.so.13 in a Python package of NVIDIA's, or to "".
function(find_in_packages variable file)
    execute_process(
        COMMAND "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/vendor/cuda_packages.py" "${file}"
        OUTPUT_VARIABLE path
        OUTPUT_STRIP_TRAILING_WHITESPACE
        COMMAND_ERROR_IS_FATAL ANY)
    set(${variable} "${path}" PARENT_SCOPE)
endfunction()

# The compiler: the one that the user names, the system's, or the package's.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(PYGGML_NVCC nvcc
        HINTS "${CUDAToolkit_ROOT}" ENV CUDAToolkit_ROOT ENV CUDA_PATH ENV CUDA_HOME
        PATHS /usr/local/cuda
        PATH_SUFFIXES bin)
    if(NOT PYGGML_NVCC)
        find_in_packages(PYGGML_NVCC bin/nvcc)
    endif()
    if(NOT PYGGML_NVCC)
        message(FATAL_ERROR
            "GGML_CUDA is on, but there is no CUDA compiler. Install NVIDIA's CUDA toolkit and put its nvcc on the PATH "
            "(or name it: CMAKE_CUDA_COMPILER=/path/to/nvcc), or install it as Python packages: "
            "pip install 'cuda-toolkit[nvcc,cudart,cublas,cccl]==13.*'")
    endif()
    set(CMAKE_CUDA_COMPILER "${PYGGML_NVCC}" CACHE FILEPATH "The CUDA compiler")
endif()

# The nvcc of some packages (13.0) looks in lib64 for files in lib.
set(PYGGML_CUDA_LIB "${CMAKE_CUDA_COMPILER}")
if(NOT PYGGML_CUDA_LIB)
    set(PYGGML_CUDA_LIB "$ENV{CUDACXX}")
endif()
cmake_path(SET PYGGML_CUDA_LIB NORMALIZE "${PYGGML_CUDA_LIB}/../../lib")
if(EXISTS "${PYGGML_CUDA_LIB}/libcudart_static.a")
    if(NOT DEFINED CMAKE_CUDA_FLAGS)
        set(CMAKE_CUDA_FLAGS "$ENV{CUDAFLAGS}") # as CMake would begin
    endif()
    string(APPEND CMAKE_CUDA_FLAGS " -L\"${PYGGML_CUDA_LIB}\"")
endif()

# The libraries: the toolkit's, or the packages' of the same version. Those have only versioned names, which CMake
# would not find.
find_package(CUDAToolkit QUIET)
foreach(library IN ITEMS cudart cublas cublasLt)
    if(TARGET CUDA::${library})
        continue()
    endif()
    find_in_packages(path lib/lib${library}.so.${CUDAToolkit_VERSION_MAJOR})
    if(NOT path)
        message(FATAL_ERROR
            "GGML_CUDA is on, and nvcc is version ${CUDAToolkit_VERSION}, but lib${library}.so."
            "${CUDAToolkit_VERSION_MAJOR} is neither in its toolkit nor in a Python package. Install the toolkit's "
            "development files of cuBLAS, or packages of the compiler's version: "
            "pip install 'cuda-toolkit[cudart,cublas]==${CUDAToolkit_VERSION_MAJOR}.*'")
    endif()
    set(CUDA_${library}_LIBRARY "${path}" CACHE FILEPATH "From a Python package" FORCE)
    if(library STREQUAL cudart)
        set(CUDA_CUDART "${path}" CACHE FILEPATH "From a Python package" FORCE) # without it CMake finds no toolkit
    endif()
endforeach()
find_package(CUDAToolkit REQUIRED)

# Only the packages' cuBLAS headers, in a separate folder: other headers next to them may belong to another runtime.
set(CUDA_CUBLAS_INCLUDES "")
find_file(CUDA_CUBLAS_HEADER cublas_v2.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
if(NOT CUDA_CUBLAS_HEADER)
    set(CUDA_CUBLAS_INCLUDES "${CMAKE_CURRENT_BINARY_DIR}/cublas")
    cmake_path(REPLACE_FILENAME CUDA_cublas_LIBRARY ../include OUTPUT_VARIABLE headers)
    file(GLOB headers "${headers}/cublas*.h")
    file(COPY ${headers} DESTINATION "${CUDA_CUBLAS_INCLUDES}")
endif()

# Location of the packages next to the installed module. csrc/boundary/backend_loader.cpp searches other places.
if(CUDAToolkit_VERSION_MAJOR GREATER_EQUAL 13)
    set(CUDA_RUN_PATH "$ORIGIN/../nvidia/cu${CUDAToolkit_VERSION_MAJOR}/lib")
else()
    set(CUDA_RUN_PATH "$ORIGIN/../nvidia/cuda_runtime/lib:$ORIGIN/../nvidia/cublas/lib")
endif()
