# Everything comes from Debian 12's packages; scripts/setup installs what is missing.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(tl-expected REQUIRED)
find_package(msgpack CONFIG REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
# Its one type is compiled once (base/json_once.h).
set(json_once ${CMAKE_SOURCE_DIR}/base/json_once)
add_library(baton_json_once STATIC ${json_once}.cc)
get_target_property(json_folders nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(baton_json_once SYSTEM PRIVATE ${json_folders})
target_link_libraries(baton_json_once PRIVATE baton_options baton_sanitizers)
set_property(TARGET nlohmann_json::nlohmann_json APPEND PROPERTY
  INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${json_once}.h>")
set_property(TARGET nlohmann_json::nlohmann_json APPEND PROPERTY
  INTERFACE_LINK_LIBRARIES baton_json_once)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(OpenSSL REQUIRED)
# By its static library: libbaton.so is loaded where there may be none, and shows none of it.
find_library(BATON_ZSTD libzstd.a REQUIRED)
add_library(baton_zstd INTERFACE)
target_link_libraries(baton_zstd INTERFACE ${BATON_ZSTD})
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
# zmq.h is where all headers are. The folders that libzmq itself was built with come in another order
# when CMake runs again, and all that uses it would be compiled again.
set_target_properties(PkgConfig::ZMQ PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "" INTERFACE_COMPILE_OPTIONS "")
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
find_package(SQLiteCpp REQUIRED)
find_package(date REQUIRED)
pkg_check_modules(PQXX REQUIRED IMPORTED_TARGET libpqxx libpq)

# What the demo does without. Where it is missing, what needs it is left out.
find_package(benchmark QUIET)
find_package(GTest QUIET)
find_package(rapidcheck QUIET)
find_package(yaml-cpp QUIET)
find_package(Protobuf QUIET)
# By its own file: pkg-config takes half a minute for all that grpc++ stands on.
find_package(gRPC CONFIG QUIET)

# cuda.h, for types and declarations only: nothing links against CUDA.
find_path(BATON_CUDA_INCLUDE cuda.h
  HINTS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include
        "$ENV{XDG_CACHE_HOME}/baton/cuda-11.8/include" "$ENV{HOME}/.cache/baton/cuda-11.8/include"
  DOC "Folder with the CUDA driver API's cuda.h (11.8 to 13)")
if(NOT BATON_CUDA_INCLUDE)
  message(FATAL_ERROR "cuda.h was not found. Run scripts/setup, or pass -DBATON_CUDA_INCLUDE=DIR.")
endif()
add_library(baton_cuda INTERFACE)
target_include_directories(baton_cuda SYSTEM INTERFACE ${BATON_CUDA_INCLUDE})

# For tests only, and skipped without: the programs of Debian's package prometheus.
find_program(BATON_PROMETHEUS prometheus
  HINTS "$ENV{XDG_CACHE_HOME}/baton/prometheus" "$ENV{HOME}/.cache/baton/prometheus")
find_program(BATON_PROMTOOL promtool
  HINTS "$ENV{XDG_CACHE_HOME}/baton/prometheus" "$ENV{HOME}/.cache/baton/prometheus")
