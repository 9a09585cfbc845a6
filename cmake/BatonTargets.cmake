# How every target of the project is compiled, said once.

option(BATON_WERROR "Treat warnings as errors" ON)
option(BATON_FUZZ "Count coverage for libFuzzer and build tests/fuzz as fuzzers; needs clang" OFF)
set(BATON_SANITIZE "" CACHE STRING "Sanitizers for programs and tests, e.g. address,undefined")

add_library(baton_options INTERFACE)
target_include_directories(baton_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(baton_options INTERFACE -Wall -Wextra -Wpedantic -g1
                       $<$<BOOL:${BATON_WERROR}>:-Werror>)
# g++ 12 sees overlapping copies in std::string's own operator+ (GCC bug 105329).
target_compile_options(baton_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)

# The compiler looks for garbage less often: a twelfth of its time, for 300 MB more at most.
target_compile_options(baton_options INTERFACE
                       $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)

# The sanitizers go into programs and ordinary libraries. What is preloaded into other people's
# processes (hook/) or stands in for the driver (sim/) is loaded into programs with and without
# them, so those two never carry a sanitizer's runtime.
add_library(baton_sanitizers INTERFACE)
if(BATON_SANITIZE)
  target_compile_options(baton_sanitizers INTERFACE -fsanitize=${BATON_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # Checks of every pointer that is followed are a third of the compile time; what they find beyond
  # the address sanitizer is alignment, and foreign bytes are only ever copied.
  if(BATON_SANITIZE MATCHES undefined)
    target_compile_options(baton_sanitizers INTERFACE
                           -fno-sanitize=null,alignment,vptr,object-size)
  endif()
  target_link_options(baton_sanitizers INTERFACE -fsanitize=${BATON_SANITIZE})
  target_compile_definitions(baton_sanitizers INTERFACE BATON_SANITIZED)
  # g++ 12 says that the thread sanitizer does not model Asio's fences.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND BATON_SANITIZE MATCHES thread)
    target_compile_options(baton_sanitizers INTERFACE -Wno-tsan)
  endif()
endif()

if(BATON_FUZZ)
  # Beyond what `undefined` has: a number that does not fit into what it is converted to.
  target_compile_options(baton_sanitizers INTERFACE
                         -fsanitize=fuzzer-no-link,float-cast-overflow -fno-sanitize-recover=all)
endif()

# baton_library(NAME SOURCES... [DEPENDS targets...]): a static library of the product.
function(baton_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(baton_${name} STATIC ${arg_SOURCES})
  target_link_libraries(baton_${name} PRIVATE baton_options baton_sanitizers
                        PUBLIC ${arg_DEPENDS})
endfunction()

# For pure code of which tests run a great many steps, under the address sanitizer too; and for
# tests under Release: they would take minutes otherwise.
function(baton_optimise_always name)
  set_target_properties(${name} PROPERTIES BATON_OPTIMISE 1)
  if(NOT BATON_SANITIZE MATCHES thread)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Debug>:-O1>)
  endif()
endfunction()

# For what waits for people and networks: a quarter of its compile time for nothing that is noticed.
function(baton_compile_fast name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# baton_program(NAME SOURCES... [DEPENDS targets...]): a program of the product, built into
# build/<preset>/bin and installed.
function(baton_program name)
  cmake_parse_arguments(arg "NO_INSTALL" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE baton_options baton_sanitizers ${arg_DEPENDS})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin INSTALL_RPATH "$ORIGIN/../lib"
    # Else CMake leaves room for it, a path of empty entries: libraries are looked for in the current
    # folder. The Dockerfile takes the programs from the build.
    BUILD_WITH_INSTALL_RPATH ON)
  if(NOT arg_NO_INSTALL)
    set_property(GLOBAL APPEND PROPERTY BATON_PROGRAMS ${name})
  endif()
endfunction()

# All tests, with the programs that they run; and those of them that are more than unit tests.
add_custom_target(baton_tests)
add_custom_target(baton_program_tests)

# baton_test(NAME SOURCES... [DEPENDS targets...] [LABELS labels...] [FILTER filter] [ALONE filter]):
# a GoogleTest program; each of its cases is a ctest test of its own. FILTER: of its cases only these
# (--gtest_filter). ALONE: beside these no other test runs; not together with FILTER. SUITES: each of
# its suites is a ctest test instead, in one process; for many quick cases. A FILTER may then only
# leave out ("-A.*"). RELEASE_ONLY: scripts/test does not build it for the sanitizers. Labels: unit (the
# default), which scripts/test runs under sanitizers alone; program, for what runs the product's
# programs or looks at them, and is run under release too; or one of its own.
function(baton_test name)
  cmake_parse_arguments(arg "RELEASE_ONLY;SUITES" "TIMEOUT;FILTER;ALONE" "SOURCES;DEPENDS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    # Of a case, and of a suite of many, under sanitizers on a busy machine.
    if(arg_SUITES)
      set(arg_TIMEOUT 300)
    else()
      set(arg_TIMEOUT 60)
    endif()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE baton_options baton_sanitizers ${arg_DEPENDS}
                        GTest::gtest_main)
  if(NOT arg_RELEASE_ONLY OR NOT BATON_SANITIZE)
    add_dependencies(baton_tests ${name})
    if(NOT arg_LABELS STREQUAL "unit")
      add_dependencies(baton_program_tests ${name})
    endif()
  endif()
  # What is tested is optimised; the test's own code is, where it says so.
  target_compile_options(${name} PRIVATE
    $<$<CONFIG:Release>:-O$<IF:$<BOOL:$<TARGET_PROPERTY:${name},BATON_OPTIMISE>>,1,0>>)
  if(arg_SUITES)
    set(suites ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
    file(GENERATE OUTPUT ${suites} CONTENT "set(suites_name ${name})
set(suites_program [[$<TARGET_FILE:${name}>]])
set(suites_filter [[${arg_FILTER}]])
set(suites_properties LABELS [[${arg_LABELS}]] TIMEOUT ${arg_TIMEOUT} ENVIRONMENT [[${arg_ENVIRONMENT}]])
include([[${CMAKE_SOURCE_DIR}/cmake/BatonTestSuites.cmake]])
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${suites})
    return()
  endif()
  if(arg_ALONE)
    set(arg_FILTER "-${arg_ALONE}")
    gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
      TEST_FILTER "${arg_ALONE}"
      PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ON
                 ENVIRONMENT "${arg_ENVIRONMENT}")
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
    TEST_FILTER "${arg_FILTER}"
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()
