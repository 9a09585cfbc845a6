# The web page, embedded: a library `baton_web` with the built files of web/ as arrays, and a header
# "web/assets.h".
#
# esbuild bundles the page. Where there is no esbuild or no network, -DBATON_WEB_DIST=DIR takes files
# that were built elsewhere (build/<preset>/generated/web/dist of another checkout).

set(BATON_WEB_DIST "" CACHE PATH "Folder with the page's built files; empty: build them with esbuild")

file(GLOB_RECURSE baton_web_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/src/*.ts
     ${CMAKE_SOURCE_DIR}/web/src/*.css)
list(APPEND baton_web_sources
  ${CMAKE_SOURCE_DIR}/web/index.html ${CMAKE_SOURCE_DIR}/web/public/icon.svg)

set(baton_web_dir ${CMAKE_BINARY_DIR}/generated/web)
set(baton_web_files ${baton_web_dir}/dist/index.html ${baton_web_dir}/dist/app.js
  ${baton_web_dir}/dist/app.css ${baton_web_dir}/dist/icon.svg)
if(BATON_WEB_DIST)
  set(baton_web_sources)
  foreach(file index.html app.js app.css icon.svg)
    if(NOT EXISTS ${BATON_WEB_DIST}/${file})
      message(FATAL_ERROR "${BATON_WEB_DIST} has no ${file}. Name a folder with the page's built "
                          "files, as build/release/generated/web/dist, or unset BATON_WEB_DIST.")
    endif()
    list(APPEND baton_web_sources ${BATON_WEB_DIST}/${file})
  endforeach()
else()
  find_program(BATON_ESBUILD esbuild)
  if(NOT BATON_ESBUILD)
    message(FATAL_ERROR "esbuild was not found; it builds the web page. Run scripts/setup, or pass "
                        "-DBATON_WEB_DIST=DIR with the files built elsewhere.")
  endif()
endif()
add_custom_command(
  OUTPUT ${baton_web_files}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR}/web -DSHARED=${CMAKE_SOURCE_DIR}/build/web
          -DDIST=${BATON_WEB_DIST} -DOUT=${baton_web_dir}/dist -DESBUILD=${BATON_ESBUILD}
          -P ${CMAKE_SOURCE_DIR}/cmake/BuildWeb.cmake
  DEPENDS ${baton_web_sources} ${CMAKE_SOURCE_DIR}/cmake/BuildWeb.cmake
  COMMENT "Building the web page" VERBATIM)

# The assembler includes the files: nothing for the compiler to chew.
set(baton_web_cc ${baton_web_dir}/assets.cc)
# Not in a unity file, which would not know what it depends on.
set_source_files_properties(${baton_web_cc} PROPERTIES
  OBJECT_DEPENDS "${baton_web_files}" SKIP_UNITY_BUILD_INCLUSION ON)
add_library(baton_web STATIC ${baton_web_cc})
target_link_libraries(baton_web PRIVATE baton_options)
target_include_directories(baton_web PUBLIC ${CMAKE_BINARY_DIR}/generated)

file(CONFIGURE OUTPUT ${baton_web_dir}/assets.h @ONLY CONTENT [=[
// The web page's files, as batond serves them. Made by cmake/BatonWeb.cmake.
#ifndef BATON_WEB_ASSETS_H_
#define BATON_WEB_ASSETS_H_

#include <span>
#include <string_view>

namespace baton::web {

struct Asset {
  std::string_view path;   // "/index.html"
  std::string_view type;   // Content-Type
  std::string_view bytes;  // lives for ever
};
// "/index.html" is what "/" should show. Thread safe.
std::span<const Asset> Assets();

}  // namespace baton::web

#endif  // BATON_WEB_ASSETS_H_
]=])

set(symbols "")
set(declarations "")
set(rows "")
foreach(entry "index.html|text/html; charset=utf-8" "app.js|text/javascript; charset=utf-8"
              "app.css|text/css; charset=utf-8" "icon.svg|image/svg+xml")
  string(REGEX REPLACE "\\|.*" "" file "${entry}")
  string(REGEX REPLACE ".*\\|" "" type "${entry}")
  string(MAKE_C_IDENTIFIER "baton_web_${file}" name)
  string(APPEND symbols
    "${name}:\\n.incbin \\\"${baton_web_dir}/dist/${file}\\\"\\n${name}_end:\\n.byte 0\\n")
  string(APPEND declarations
    "extern \"C\" __attribute__((visibility(\"hidden\"))) const char ${name}[];\nextern \"C\" __attribute__((visibility(\"hidden\"))) const char ${name}_end[];\n")
  string(APPEND rows "      {\"/${file}\", \"${type}\", Between(${name}, ${name}_end)},\n")
endforeach()
file(CONFIGURE OUTPUT ${baton_web_cc} @ONLY CONTENT [=[
// Made by cmake/BatonWeb.cmake.
#include "web/assets.h"

#include <array>
#include <cstddef>

__asm__(".section .rodata\n@symbols@.previous\n");

@declarations@
namespace baton::web {
namespace {

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::span<const Asset> Assets() {
  static const std::array<Asset, 4> kAssets{{
@rows@  }};
  return kAssets;
}

}  // namespace baton::web
]=])
