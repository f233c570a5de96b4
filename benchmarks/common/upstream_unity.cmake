# Compiles upstream's helpers a dozen files together, as vendor/CMakeLists.txt does: a third of the CPU time.
cmake_language(DEFER CALL set_target_properties llama-common PROPERTIES
    UNITY_BUILD ON
    UNITY_BUILD_BATCH_SIZE 12
    UNITY_BUILD_CODE_BEFORE_INCLUDE "#undef FILENAME")
cmake_language(DEFER CALL set_property
    SOURCE "${CMAKE_CURRENT_SOURCE_DIR}/common/json.cpp" TARGET_DIRECTORY llama-common
    PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
